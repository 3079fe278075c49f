-- name: acquire
-- rules: absent.acquire.always lapsed.acquire.always live.acquire.is_same_request
-- A poll of a live lease locks nothing. Who takes a lapsed one over locks its row first, so that of many only one goes
-- on; of two first requests for a name the second fails on the key, which means lost. Before it commits it must have
-- the exclusive application locks of the lease: `fence` always, `courtesy` (an open term.transaction(), which is asked
-- once more when it commits) unless the lease has been over for longer than it lasts; and the term's row, under a lock
-- that a guard's shared one keeps out. None of them is waited for: one stuck holder holds up no other lease, and what
-- is not to be had at once is a "not yet", rolled back. A grant is answered from what was written, not read again: after
-- the commit the row may be locked, or another's by now. `spent` is a "not yet" after which the session is not used again:
-- the answer to a refused lock is -1, and a server with another word for it may keep something of each refusal. docs/decisions/0011 has the argument.
-- A request that is repeated writes its row once more, there and back: its first commit may not have got to the secondary that the
-- server waits for, and this one waits for it. (An update to the same value would write nothing.)
SET NOCOUNT ON;
DECLARE @name nvarchar(128) = :name, @holder nvarchar(256) = :holder, @nonce nvarchar(128) = :nonce, @lease_us bigint = :lease_us;
DECLARE @now datetime2(7), @until datetime2(7), @expires_at datetime2(7), @epoch bigint, @id nvarchar(36), @verdict nvarchar(16) = N'held', @got int = 0;
DECLARE @lock nvarchar(255) = CONCAT(N'fencehold/', OBJECT_ID(N'fencehold_leases'), N'/', @name);
DECLARE @fence nvarchar(255) = CONCAT(@lock, N'/fence'), @courtesy nvarchar(255) = CONCAT(@lock, N'/courtesy');
SELECT @expires_at = expires_at FROM fencehold_leases WHERE lease_name = @name;
SET @now = SYSUTCDATETIME();
IF @expires_at IS NULL OR @expires_at <= @now
BEGIN
    BEGIN TRANSACTION;
    SET @until = DATEADD(microsecond, CAST(@lease_us % 1000000 AS int), DATEADD(second, CAST(@lease_us / 1000000 AS int), @now));
    UPDATE fencehold_leases WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK)
       SET holder_id = @holder, lease_epoch = lease_epoch + 1, acquire_nonce = @nonce,
           acquired_at = @now, renewed_at = @now, expires_at = @until
     WHERE lease_name = @name AND expires_at <= @now;
    IF @@ROWCOUNT > 0 SET @verdict = N'granted';
    IF @expires_at IS NULL AND @verdict <> N'granted' AND NOT EXISTS (SELECT 1 FROM fencehold_leases WHERE lease_name = @name)
    BEGIN
        INSERT INTO fencehold_leases (lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at, acquire_nonce)
        VALUES (@name, @holder, 1, @now, @now, @until, @nonce);
        SET @verdict = N'granted';
    END
    IF @verdict = N'granted'
    BEGIN
        EXEC @got = sp_getapplock @Resource = @fence, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
        IF @got >= 0 AND (@expires_at IS NULL OR @now <= DATEADD(microsecond, CAST(@lease_us % 1000000 AS int), DATEADD(second, CAST(@lease_us / 1000000 AS int), @expires_at)))
            EXEC @got = sp_getapplock @Resource = @courtesy, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
        IF @got >= 0
        BEGIN
            SELECT @epoch = lease_epoch, @id = lease_id FROM fencehold_leases WHERE lease_name = @name;
            UPDATE fencehold_leases_terms WITH (XLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK) SET lease_epoch = @epoch WHERE lease_name = @name;
            IF @@ROWCOUNT = 0
            BEGIN
                IF EXISTS (SELECT 1 FROM fencehold_leases_terms WITH (READUNCOMMITTED) WHERE lease_name = @name) SET @got = -1;
                ELSE INSERT INTO fencehold_leases_terms (lease_name, lease_epoch) VALUES (@name, @epoch);
            END
        END
    END
    IF @got < 0
    BEGIN
        SET @verdict = CASE WHEN @got < -1 THEN N'spent' ELSE N'busy' END;
        ROLLBACK TRANSACTION;
    END
    ELSE COMMIT TRANSACTION;
END
IF @verdict = N'held' AND EXISTS (SELECT 1 FROM fencehold_leases WHERE lease_name = @name AND holder_id = @holder AND acquire_nonce = @nonce AND acquire_nonce <> N'')
BEGIN
    BEGIN TRANSACTION;
    UPDATE fencehold_leases WITH (ROWLOCK) SET acquire_nonce = CONCAT(@nonce, N'+')
     WHERE lease_name = @name AND holder_id = @holder AND acquire_nonce = @nonce AND expires_at > SYSUTCDATETIME();
    IF @@ROWCOUNT > 0 SET @verdict = N'repeated';
    UPDATE fencehold_leases WITH (ROWLOCK) SET acquire_nonce = @nonce WHERE lease_name = @name AND @verdict = N'repeated';
    COMMIT TRANSACTION;
END
IF @verdict = N'granted'
    SELECT @verdict AS verdict, @name AS lease_name, @holder AS holder_id, @epoch AS lease_epoch, @now AS acquired_at,
           @now AS renewed_at, @until AS expires_at, SYSUTCDATETIME() AS now, 0 AS step_down, @nonce AS acquire_nonce,
           @id AS lease_id;
ELSE
BEGIN
    SET @now = SYSUTCDATETIME();
    SELECT CASE WHEN @verdict IN (N'busy', N'spent') THEN @verdict
                WHEN @verdict = N'repeated' AND acquire_nonce = @nonce AND holder_id = @holder AND expires_at > @now THEN N'granted'
                WHEN expires_at <= @now THEN N'busy'
                ELSE N'held' END AS verdict,
           lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at, @now AS now,
           CASE WHEN step_down_epoch = lease_epoch THEN 1 ELSE 0 END AS step_down, acquire_nonce, lease_id
      FROM fencehold_leases WHERE lease_name = @name;
END
