-- Named leases. A character outside the basic plane takes two units of an nvarchar, hence the lengths.
CREATE TABLE fencehold_leases (
    lease_name      nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    holder_id       nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL,
    lease_epoch     bigint        NOT NULL,
    acquired_at     datetime2(7)  NOT NULL,
    renewed_at      datetime2(7)  NOT NULL,
    expires_at      datetime2(7)  NOT NULL,
    acquire_nonce   nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    step_down_epoch bigint        NOT NULL CONSTRAINT fencehold_leases_step_down DEFAULT 0,
    CONSTRAINT fencehold_leases_pkey PRIMARY KEY (lease_name),
    CONSTRAINT fencehold_leases_epoch CHECK (lease_epoch > 0)
);
GO
-- The same epoch once more, in a row that only a takeover changes: what guards a single statement is a lock on this
-- row, and renewals do not meet it.
IF OBJECT_ID(N'fencehold_leases_terms') IS NULL
CREATE TABLE fencehold_leases_terms (
    lease_name  nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    lease_epoch bigint        NOT NULL,
    CONSTRAINT fencehold_leases_terms_pkey PRIMARY KEY (lease_name)
);
GO
-- A falling epoch would let a stale writer in again, and so would a deleted row: its successor starts at 1.
CREATE TRIGGER fencehold_leases_guard ON fencehold_leases AFTER UPDATE, DELETE AS
BEGIN
    SET NOCOUNT ON;
    IF EXISTS (SELECT 1 FROM deleted AS d LEFT JOIN inserted AS i ON i.lease_name = d.lease_name
                WHERE i.lease_name IS NULL OR i.lease_epoch < d.lease_epoch)
    BEGIN
        ROLLBACK TRANSACTION;
        RAISERROR (N'A lease must not be deleted and its epoch must not fall: a stale writer could pass the fence.', 16, 1);
    END
END
