-- name: seize
-- Only the lock's holder runs this: the epoch rises whatever the row's expiry. An earlier holder's write that is under way
-- is waited for: the lock `fence` is never passed, `courtesy` (an open term.transaction(), which is asked once more when
-- it commits) is, when the wait is over. The term's row comes before the lease's, as in a guard, which has a shared lock on
-- the one when it asks for the other. The clock is read after the locks. 0 means: not now. A transaction that an error
-- has left open would swallow the commit: it is ended first.
SET NOCOUNT ON;
DECLARE @name nvarchar(128) = :name, @holder nvarchar(256) = :holder, @nonce nvarchar(128) = :nonce, @lease_us bigint = :lease_us, @wait_ms int = :wait_ms;
DECLARE @now datetime2(7), @until datetime2(7), @epoch bigint = 0, @id nvarchar(36) = N'', @got int, @passed int;
DECLARE @lock nvarchar(255) = CONCAT(N'fencehold/', OBJECT_ID(N'fencehold_leases'), N'/', @name);
DECLARE @fence nvarchar(255) = CONCAT(@lock, N'/fence'), @courtesy nvarchar(255) = CONCAT(@lock, N'/courtesy');
IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
BEGIN TRANSACTION;
EXEC @passed = sp_getapplock @Resource = @courtesy, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @wait_ms;
EXEC @got = sp_getapplock @Resource = @fence, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @wait_ms;
IF @got >= 0
BEGIN
    SELECT @epoch = lease_epoch FROM fencehold_leases WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK) WHERE lease_name = @name;
    SET @epoch = @epoch + 1;
    UPDATE fencehold_leases_terms WITH (XLOCK, ROWLOCK) SET lease_epoch = @epoch WHERE lease_name = @name;
    IF @@ROWCOUNT = 0 INSERT INTO fencehold_leases_terms (lease_name, lease_epoch) VALUES (@name, @epoch);
    SET @now = SYSUTCDATETIME();
    SET @until = DATEADD(microsecond, CAST(@lease_us % 1000000 AS int), DATEADD(second, CAST(@lease_us / 1000000 AS int), @now));
    UPDATE fencehold_leases
       SET holder_id = @holder, lease_epoch = @epoch, acquire_nonce = @nonce,
           acquired_at = @now, renewed_at = @now, expires_at = @until
     WHERE lease_name = @name;
    IF @@ROWCOUNT = 0
        INSERT INTO fencehold_leases (lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at, acquire_nonce)
        VALUES (@name, @holder, @epoch, @now, @now, @until, @nonce);
    SELECT @id = lease_id FROM fencehold_leases WHERE lease_name = @name;
END
COMMIT TRANSACTION;
SELECT COALESCE(@epoch, 0) AS lease_epoch, @id AS lease_id;
