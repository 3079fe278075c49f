-- What tells a lease from one of the same name in another file: made with its row, never changed.
ALTER TABLE fencehold_leases ADD COLUMN lease_id TEXT;

-- Rows that were there before.
UPDATE fencehold_leases SET lease_id = lower(hex(randomblob(16)));

-- For processes of the version before, which insert without it; SQLite adds no column with a default of this kind.
CREATE TRIGGER fencehold_leases_has_id AFTER INSERT ON fencehold_leases
WHEN NEW.lease_id IS NULL
BEGIN
    UPDATE fencehold_leases SET lease_id = lower(hex(randomblob(16))) WHERE lease_name = NEW.lease_name;
END;
