-- name: fence_kept
-- The lock that `fence` took is there only in the transaction that it was taken in.
DECLARE @name nvarchar(128) = :name;
SELECT CASE WHEN APPLOCK_MODE(N'public', CONCAT(N'fencehold/', OBJECT_ID(N'fencehold_leases'), N'/', @name, N'/fence'), N'Transaction')
            = N'NoLock' THEN 0 ELSE 1 END AS is_kept;
