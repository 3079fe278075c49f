-- name: write_try
-- only: sqlserver, because elsewhere acquire itself can be rolled back: here it ends its own transaction.
-- All that a lease is written with, undone at once.
SET NOCOUNT ON;
DECLARE @name nvarchar(128) = :name, @now datetime2(7) = SYSUTCDATETIME();
BEGIN TRANSACTION;
INSERT INTO fencehold_leases (lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at, acquire_nonce)
VALUES (@name, @name, 1, @now, @now, @now, N'');
UPDATE fencehold_leases SET expires_at = @now WHERE lease_name = @name;
ROLLBACK TRANSACTION;
SELECT 1 AS done;
