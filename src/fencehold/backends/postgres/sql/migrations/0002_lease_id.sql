-- What tells a lease from one of the same name in another database: made with its row, never changed. The default serves
-- processes of the version before, which insert without it. No step rewrites the table: a snapshot from before would then
-- find it empty, and a renewal its lease gone.
ALTER TABLE fencehold_leases ADD COLUMN lease_id varchar(36) COLLATE "C";

ALTER TABLE fencehold_leases ALTER COLUMN lease_id SET DEFAULT gen_random_uuid()::text;

UPDATE fencehold_leases SET lease_id = gen_random_uuid()::text;

ALTER TABLE fencehold_leases ALTER COLUMN lease_id SET NOT NULL;
