-- Where each grant was made: the timeline of the write-ahead log, which every promotion raises, and the identifier of the
-- server's data. A standby that is promoted without the last grants would give their epochs out again; so the first grant
-- on another timeline, or in other data, jumps. A trigger decides it: it sees the grants of the version before too, needs
-- no right that a role did not have, and stays with the table when that is renamed.
ALTER TABLE fencehold_leases ADD COLUMN grant_timeline bigint, ADD COLUMN grant_system bigint;

-- rules: place.is_unknown place.is_same place.is_ahead place.is_elsewhere
-- The arguments of the trigger are where `init` ran: a name without a row counts from there. What cannot be read (there is
-- no such function, no right to it, or no such log) counts as unknown; but a server that is short of memory has not said that.
CREATE OR REPLACE FUNCTION fencehold_leases_lift() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    jump          CONSTANT bigint := 1000000;
    epoch         bigint := NEW.lease_epoch;
    last_timeline bigint := nullif(TG_ARGV[0], '');
    last_system   bigint := nullif(TG_ARGV[1], '');
    now_timeline  bigint;
    now_system    bigint;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.lease_epoch <= OLD.lease_epoch THEN
            RETURN NEW; -- no grant
        END IF;
        epoch := OLD.lease_epoch;
        last_timeline := OLD.grant_timeline;
        last_system := OLD.grant_system;
    ELSIF NEW.grant_timeline IS NOT NULL THEN
        RETURN NEW; -- copied from elsewhere, not granted
    END IF;
    BEGIN
        now_timeline := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
        now_system := (pg_control_system()).system_identifier;
    EXCEPTION
        WHEN insufficient_resources THEN RAISE;
        WHEN OTHERS THEN NULL;
    END;
    IF now_timeline <> last_timeline OR (now_timeline = last_timeline AND now_system <> last_system) THEN
        NEW.lease_epoch := greatest(NEW.lease_epoch, epoch + jump * greatest(1, now_timeline - last_timeline));
    END IF;
    NEW.grant_timeline := coalesce(now_timeline, last_timeline);
    NEW.grant_system := CASE WHEN now_timeline IS NULL THEN last_system ELSE coalesce(now_system, last_system) END;
    RETURN NEW;
END
$body$;

DO $body$
DECLARE
    timeline bigint;
    system   bigint;
BEGIN
    BEGIN
        timeline := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
        system := (pg_control_system()).system_identifier;
    EXCEPTION
        WHEN insufficient_resources THEN RAISE;
        WHEN OTHERS THEN NULL;
    END;
    -- Whatever was granted until now was granted on this branch.
    UPDATE fencehold_leases SET grant_timeline = timeline, grant_system = system;
    EXECUTE format($sql$
        CREATE TRIGGER fencehold_leases_epoch_lifted BEFORE INSERT OR UPDATE OF lease_epoch ON fencehold_leases
            FOR EACH ROW EXECUTE FUNCTION fencehold_leases_lift(%L, %L)
        $sql$, coalesce(timeline::text, ''), coalesce(system::text, ''));
END
$body$;
