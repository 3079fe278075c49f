-- name: enter
-- only: sqlserver, because only this server lets a frozen client keep its transaction and its locks for ever.
-- rules: live.fence.is_holder
-- The start of a term's own transaction; the first read opens it (the connection has IMPLICIT_TRANSACTIONS on). The
-- lock it takes is a courtesy: a takeover waits for it, but not for longer than a lease. What fences is `commit`, which
-- asks again. READCOMMITTEDLOCK: no read keeps a lock on the row, which renewals change.
SET NOCOUNT ON;
DECLARE @name nvarchar(128) = :name, @holder nvarchar(256) = :holder, @epoch bigint = :epoch, @lease_id nvarchar(36) = :lease_id, @wait_ms int = :wait_ms;
DECLARE @got int = -1, @id nvarchar(36), @held int = 0;
DECLARE @courtesy nvarchar(255) = CONCAT(N'fencehold/', OBJECT_ID(N'fencehold_leases'), N'/', @name, N'/courtesy');
SELECT @id = lease_id FROM fencehold_leases WITH (READCOMMITTEDLOCK) WHERE lease_name = @name;
EXEC @got = sp_getapplock @Resource = @courtesy, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = @wait_ms;
SELECT @held = 1 FROM fencehold_leases WITH (READCOMMITTEDLOCK)
 WHERE lease_name = @name AND holder_id = @holder AND lease_epoch = @epoch AND lease_id = @lease_id
   AND expires_at > SYSUTCDATETIME();
SET NOCOUNT OFF;
SELECT @@TRANCOUNT AS open_transactions, @got AS locked, @held AS is_held,
       CASE WHEN @id = @lease_id COLLATE Latin1_General_BIN2 THEN 1 ELSE 0 END AS is_ours;
