-- name: fence
-- rules: live.fence.is_holder
-- In the caller's own transaction, which must be open: with implicit transactions the first read opens it. The shared
-- application lock keeps a takeover out until that transaction ends; renewals ask for no such lock. Only then is the
-- lease read, as it is now (READCOMMITTEDLOCK) and not as an older snapshot had it; whatever the isolation of the
-- caller's transaction, neither read keeps a lock on the row, which renewals change.
SET NOCOUNT ON;
DECLARE @name nvarchar(128) = :name, @holder nvarchar(256) = :holder, @epoch bigint = :epoch, @wait_ms int = :wait_ms;
DECLARE @got int = -1, @there bigint = 0, @held int = 0;
DECLARE @fence nvarchar(255) = CONCAT(N'fencehold/', OBJECT_ID(N'fencehold_leases'), N'/', @name, N'/fence');
SELECT @there = lease_epoch FROM fencehold_leases WITH (READCOMMITTEDLOCK) WHERE lease_name = @name;
IF @@TRANCOUNT > 0
    EXEC @got = sp_getapplock @Resource = @fence, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = @wait_ms;
SELECT @held = 1 FROM fencehold_leases WITH (READCOMMITTEDLOCK)
 WHERE lease_name = @name AND holder_id = @holder AND lease_epoch = @epoch AND expires_at > SYSUTCDATETIME();
SET NOCOUNT OFF;
SELECT @@TRANCOUNT AS open_transactions, @got AS locked, @held AS is_held;
