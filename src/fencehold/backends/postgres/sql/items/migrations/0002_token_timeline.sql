-- Where tokens were last given out: the timeline of the write-ahead log, which every promotion raises, and the identifier of
-- the server's data. The sequence of a standby that is promoted is where the last write that it got had left it, and would
-- give the same tokens out again; so the first grant on another timeline, or in other data, moves the sequence on.
-- Tokens below `floor` were taken from it before that.
CREATE TABLE IF NOT EXISTS fencehold_items_place (
    one               boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    timeline          bigint,
    system_identifier bigint,
    floor             bigint  NOT NULL DEFAULT 0
);

-- rules: place.is_unknown place.is_same place.is_ahead place.is_elsewhere
-- It runs with the rights of the owner: a role that may lease items may neither set the sequence nor write the place. It
-- takes no argument, and finds nothing by the caller's search_path.
DO $do$
DECLARE
    place text := (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                    WHERE c.oid = 'fencehold_items_place'::regclass);
    token text := (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                    WHERE c.oid = 'fencehold_items_token'::regclass);
    timeline bigint;
    system   bigint;
BEGIN
    EXECUTE format($sql$
        CREATE OR REPLACE FUNCTION fencehold_items_lift() RETURNS trigger LANGUAGE plpgsql
            SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
        DECLARE
            jump         CONSTANT bigint := 1000000000;
            last         record;
            now_timeline bigint;
            now_system   bigint;
        BEGIN
            BEGIN
                now_timeline := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
                now_system := (pg_control_system()).system_identifier;
            EXCEPTION
                WHEN insufficient_resources THEN RAISE;
                WHEN OTHERS THEN NULL;
            END;
            SELECT p.* INTO last FROM %1$s AS p;
            IF now_timeline IS NOT NULL AND (now_timeline IS DISTINCT FROM last.timeline
                                             OR coalesce(now_system, last.system_identifier) IS DISTINCT FROM last.system_identifier) THEN
                -- The first on a new timeline moves the sequence; the others wait for its commit, and find it moved.
                SELECT p.* INTO last FROM %1$s AS p FOR UPDATE;
                IF now_timeline <> last.timeline OR (now_timeline = last.timeline AND now_system <> last.system_identifier) THEN
                    last.floor := setval(%2$L, nextval(%2$L) + jump * greatest(1, now_timeline - last.timeline));
                END IF;
                UPDATE %1$s SET timeline = now_timeline, floor = last.floor,
                                system_identifier = coalesce(now_system, last.system_identifier);
            END IF;
            IF NEW.token < last.floor THEN
                NEW.token := nextval(%2$L);
            END IF;
            RETURN NEW;
        END
        $body$
        $sql$, place, token);
    BEGIN
        timeline := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
        system := (pg_control_system()).system_identifier;
    EXCEPTION
        WHEN insufficient_resources THEN RAISE;
        WHEN OTHERS THEN NULL;
    END;
    INSERT INTO fencehold_items_place (timeline, system_identifier) VALUES (timeline, system) ON CONFLICT DO NOTHING;
END
$do$;

CREATE TRIGGER fencehold_items_token_lifted BEFORE UPDATE OF token ON fencehold_items
    FOR EACH ROW EXECUTE FUNCTION fencehold_items_lift();
