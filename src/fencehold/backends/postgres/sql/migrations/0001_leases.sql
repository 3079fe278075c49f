-- Named leases. UNIQUE (lease_name, lease_epoch) makes the epoch part of a key: a takeover then needs the row lock that
-- a fenced transaction's FOR KEY SHARE keeps from it, while a renewal, which changes no key, does not wait.
CREATE TABLE fencehold_leases (
    lease_name      varchar(64)  COLLATE "C" NOT NULL,
    holder_id       varchar(128) COLLATE "C" NOT NULL,
    lease_epoch     bigint       NOT NULL CHECK (lease_epoch > 0),
    acquired_at     timestamptz  NOT NULL,
    renewed_at      timestamptz  NOT NULL,
    expires_at      timestamptz  NOT NULL,
    acquire_nonce   varchar(64)  COLLATE "C" NOT NULL,
    step_down_epoch bigint       NOT NULL DEFAULT 0,
    CONSTRAINT fencehold_leases_pkey PRIMARY KEY (lease_name),
    CONSTRAINT fencehold_leases_epoch_key UNIQUE (lease_name, lease_epoch)
) WITH (fillfactor = 50);

-- A falling epoch would let a stale writer in again, and so would a deleted row: its successor starts at 1.
CREATE FUNCTION fencehold_leases_guard() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'lease % must not be deleted: its epoch would start again at 1', OLD.lease_name
            USING HINT = 'Release it instead; to retire the table, drop it.';
    END IF;
    IF NEW.lease_epoch < OLD.lease_epoch THEN
        RAISE EXCEPTION 'the epoch of lease % must not fall from % to %', OLD.lease_name, OLD.lease_epoch, NEW.lease_epoch;
    END IF;
    RETURN NEW;
END
$body$;

CREATE TRIGGER fencehold_leases_epoch_rises BEFORE UPDATE OF lease_epoch ON fencehold_leases
    FOR EACH ROW EXECUTE FUNCTION fencehold_leases_guard();

CREATE TRIGGER fencehold_leases_row_stays BEFORE DELETE ON fencehold_leases
    FOR EACH ROW EXECUTE FUNCTION fencehold_leases_guard();
