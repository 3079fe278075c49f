-- name: commit
-- only: sqlserver, because only this server lets a frozen client keep its transaction and its locks for ever.
-- rules: live.fence.is_holder
-- The fence of a term's own transaction and its commit, in one batch: no pause of the client falls between them, so no
-- lock that stops a takeover outlasts the batch. The shared lock excludes a takeover; the epoch, read under it, says
-- whether one has happened. The courtesy lock of `enter` is there only in the transaction that it was taken in.
SET NOCOUNT ON;
DECLARE @name nvarchar(128) = :name, @holder nvarchar(256) = :holder, @epoch bigint = :epoch, @wait_ms int = :wait_ms;
DECLARE @got int = -1, @held int = 0, @verdict nvarchar(16) = N'lost';
DECLARE @lock nvarchar(255) = CONCAT(N'fencehold/', OBJECT_ID(N'fencehold_leases'), N'/', @name);
DECLARE @fence nvarchar(255) = CONCAT(@lock, N'/fence'), @courtesy nvarchar(255) = CONCAT(@lock, N'/courtesy');
IF @@TRANCOUNT = 0 SET @verdict = N'gone';
ELSE IF COALESCE(APPLOCK_MODE(N'public', @courtesy, N'Transaction'), N'NoLock') = N'NoLock' SET @verdict = N'gone';
ELSE
BEGIN
    EXEC @got = sp_getapplock @Resource = @fence, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = @wait_ms;
    SELECT @held = 1 FROM fencehold_leases WITH (READCOMMITTEDLOCK)
     WHERE lease_name = @name AND holder_id = @holder AND lease_epoch = @epoch;
    IF @got < 0 SET @verdict = N'busy';
    ELSE IF @held = 1
    BEGIN
        WHILE @@TRANCOUNT > 0 COMMIT TRANSACTION;
        SET @verdict = N'committed';
    END
END
IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
SELECT @verdict AS verdict;
