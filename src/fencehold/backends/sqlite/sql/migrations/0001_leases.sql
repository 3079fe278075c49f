-- Named leases. Times are UTC text with milliseconds, which sorts as it reads.
CREATE TABLE fencehold_leases (
    lease_name      TEXT    NOT NULL PRIMARY KEY COLLATE BINARY CHECK (length(lease_name) BETWEEN 1 AND 64),
    holder_id       TEXT    NOT NULL COLLATE BINARY CHECK (length(holder_id) BETWEEN 1 AND 128),
    lease_epoch     INTEGER NOT NULL CHECK (lease_epoch > 0),
    acquired_at     TEXT    NOT NULL,
    renewed_at      TEXT    NOT NULL,
    expires_at      TEXT    NOT NULL,
    acquire_nonce   TEXT    NOT NULL,
    step_down_epoch INTEGER NOT NULL DEFAULT 0
);

-- A falling epoch would let a stale writer in again, and so would a deleted row: its successor starts at 1.
CREATE TRIGGER fencehold_leases_epoch_rises BEFORE UPDATE OF lease_epoch ON fencehold_leases
WHEN NEW.lease_epoch < OLD.lease_epoch
BEGIN
    SELECT RAISE(ABORT, 'the epoch of a lease must not fall');
END;

CREATE TRIGGER fencehold_leases_row_stays BEFORE DELETE ON fencehold_leases
BEGIN
    SELECT RAISE(ABORT, 'a lease must not be deleted: its epoch would start again at 1; release it instead');
END;
