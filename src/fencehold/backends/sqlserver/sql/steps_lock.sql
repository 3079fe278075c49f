-- name: steps_lock
-- One migration at a time per database; the lock ends with the transaction.
SET NOCOUNT ON;
DECLARE @wait_ms int = :wait_ms, @got int;
EXEC @got = sp_getapplock @Resource = N'fencehold/schema', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @wait_ms;
SELECT @got AS locked;
