-- name: fence
-- rules: live.fence.is_holder
-- In the caller's own transaction, which must be open: with implicit transactions the first read opens it. The shared
-- application lock keeps a takeover out until that transaction ends; renewals ask for no such lock. Only then is the
-- lease read, as it is now (READCOMMITTEDLOCK) and not as an older snapshot had it; whatever the isolation of the
-- caller's transaction, neither read keeps a lock on the row, which renewals change. In another database there is no such
-- lease, or another of the same name: `is_ours` is 0.
SET NOCOUNT ON;
DECLARE @name nvarchar(128) = :name, @holder nvarchar(256) = :holder, @epoch bigint = :epoch, @lease_id nvarchar(36) = :lease_id, @wait_ms int = :wait_ms;
DECLARE @got int = -1, @id nvarchar(36), @held int = 0;
DECLARE @fence nvarchar(255) = CONCAT(N'fencehold/', OBJECT_ID(N'fencehold_leases'), N'/', @name, N'/fence');
SELECT @id = lease_id FROM fencehold_leases WITH (READCOMMITTEDLOCK) WHERE lease_name = @name;
IF @@TRANCOUNT > 0
    EXEC @got = sp_getapplock @Resource = @fence, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = @wait_ms;
SELECT @held = 1 FROM fencehold_leases WITH (READCOMMITTEDLOCK)
 WHERE lease_name = @name AND holder_id = @holder AND lease_epoch = @epoch AND lease_id = @lease_id
   AND expires_at > SYSUTCDATETIME();
SET NOCOUNT OFF;
SELECT @@TRANCOUNT AS open_transactions, @got AS locked, @held AS is_held,
       CASE WHEN @id = @lease_id COLLATE Latin1_General_BIN2 THEN 1 ELSE 0 END AS is_ours;
