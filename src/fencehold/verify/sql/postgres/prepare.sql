-- name: prepare
-- What the contenders write to, and what triggers note of every change in its own transaction: for one row the order of
-- the notes is the order of the commits, because whoever changes the row has it locked.
CREATE TABLE {schema}.verify_counters (name text PRIMARY KEY, n bigint NOT NULL);

CREATE TABLE {schema}.verify_writes (
    lease_name text NOT NULL, commit_order bigint NOT NULL, holder_id text NOT NULL, epoch bigint NOT NULL,
    epoch_seen bigint, write_id text NOT NULL);

CREATE TABLE {schema}.verify_lease_changes (
    seq bigint GENERATED ALWAYS AS IDENTITY, name text NOT NULL, was_holder text, was_epoch bigint,
    was_live boolean NOT NULL, holder text, epoch bigint);

CREATE TABLE {schema}.verify_event_changes (
    seq bigint GENERATED ALWAYS AS IDENTITY, tracking_id text NOT NULL, was_status text NOT NULL, was_token text,
    was_live boolean NOT NULL, status text, token text, is_counted boolean NOT NULL DEFAULT false);

CREATE TABLE {schema}.verify_item_changes (
    seq bigint GENERATED ALWAYS AS IDENTITY, item_id text NOT NULL, was_holder text, was_token bigint NOT NULL,
    was_live boolean NOT NULL, holder text, token bigint NOT NULL, is_save boolean NOT NULL, document text NOT NULL);

CREATE FUNCTION {schema}.verify_lease_changed() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO {schema}.verify_lease_changes (name, was_live, holder, epoch)
        VALUES (NEW.lease_name, false, NEW.holder_id, NEW.lease_epoch);
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO {schema}.verify_lease_changes (name, was_holder, was_epoch, was_live)
        VALUES (OLD.lease_name, OLD.holder_id, OLD.lease_epoch, OLD.expires_at > clock_timestamp());
    ELSIF NEW.lease_epoch <> OLD.lease_epoch OR NEW.holder_id <> OLD.holder_id OR NEW.acquired_at <> OLD.acquired_at
          OR (NEW.expires_at > OLD.expires_at AND NEW.renewed_at >= OLD.expires_at) THEN
        INSERT INTO {schema}.verify_lease_changes (name, was_holder, was_epoch, was_live, holder, epoch)
        VALUES (OLD.lease_name, OLD.holder_id, OLD.lease_epoch, OLD.expires_at > NEW.renewed_at, NEW.holder_id,
                NEW.lease_epoch);
    END IF;
    RETURN NULL;
END $body$;

CREATE TRIGGER verify_lease_changed AFTER INSERT OR UPDATE OR DELETE ON {schema}.fencehold_leases
    FOR EACH ROW EXECUTE FUNCTION {schema}.verify_lease_changed();

CREATE FUNCTION {schema}.verify_event_changed() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO {schema}.verify_event_changes (tracking_id, was_status, was_token, was_live)
        VALUES (OLD.tracking_id, OLD.status, OLD.lock_token, coalesce(OLD.locked_until > clock_timestamp(), false));
    ELSIF OLD.status <> NEW.status OR OLD.lock_token IS DISTINCT FROM NEW.lock_token OR OLD.status = 'COMPLETED' THEN
        INSERT INTO {schema}.verify_event_changes (tracking_id, was_status, was_token, was_live, status, token, is_counted)
        VALUES (OLD.tracking_id, OLD.status, OLD.lock_token, coalesce(OLD.locked_until > clock_timestamp(), false),
                NEW.status, NEW.lock_token, NEW.retry_count > OLD.retry_count);
    END IF;
    RETURN NULL;
END $body$;

CREATE TRIGGER verify_event_changed AFTER UPDATE OR DELETE ON {schema}.outbox
    FOR EACH ROW EXECUTE FUNCTION {schema}.verify_event_changed();

CREATE FUNCTION {schema}.verify_item_changed() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF NEW.token <> OLD.token OR NEW.holder_id IS DISTINCT FROM OLD.holder_id
       OR NEW.document::text <> OLD.document::text THEN
        INSERT INTO {schema}.verify_item_changes
               (item_id, was_holder, was_token, was_live, holder, token, is_save, document)
        VALUES (OLD.id, OLD.holder_id, OLD.token,
                coalesce(OLD.expires_at > coalesce(NEW.leased_at, clock_timestamp()), false), NEW.holder_id, NEW.token,
                NEW.document::text <> OLD.document::text, NEW.document::text);
    END IF;
    RETURN NULL;
END $body$;

CREATE TRIGGER verify_item_changed AFTER UPDATE ON {schema}.fencehold_items
    FOR EACH ROW EXECUTE FUNCTION {schema}.verify_item_changed();
