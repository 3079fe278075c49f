-- What tells a lease from one of the same name in another database: made with its row, never changed. The default serves
-- processes of the version before, which insert without it, and the rows that are there: each gets an id of its own.
ALTER TABLE fencehold_leases ADD lease_id nvarchar(36) COLLATE Latin1_General_BIN2 NOT NULL
    CONSTRAINT fencehold_leases_id DEFAULT LOWER(CONVERT(nvarchar(36), NEWID()));
