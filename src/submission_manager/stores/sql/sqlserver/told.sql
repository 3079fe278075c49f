-- name: told
-- What came of telling the receiver, at one instant; fenced as the start of an attempt is. What was delivered stays
-- delivered.
SET NOCOUNT ON;
DECLARE @id nvarchar(400) = :id, @status nvarchar(16) = :status, @error nvarchar(2000) = :error,
    @name nvarchar(128) = :name, @holder nvarchar(256) = :holder, @epoch bigint = :epoch, @wait_ms int = :wait_ms;
DECLARE @got int = -1, @held int = 0, @there int = 0, @now datetime2(6), @verdict nvarchar(16) = N'lost';
DECLARE @fence nvarchar(255) = CONCAT(N'fencehold/', OBJECT_ID(N'submission_manager_leases'), N'/', @name, N'/fence');
BEGIN TRANSACTION;
EXEC @got = sp_getapplock @Resource = @fence, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = @wait_ms;
SELECT @held = 1 FROM submission_manager_leases WITH (READCOMMITTEDLOCK)
 WHERE lease_name = @name AND holder_id = @holder AND lease_epoch = @epoch AND expires_at > SYSUTCDATETIME();
IF @got < 0 SET @verdict = N'busy';
ELSE IF @held = 1
BEGIN
    SET @verdict = N'told';
    SELECT @there = 1 FROM submission_intents WITH (UPDLOCK, ROWLOCK) WHERE intent_id = @id;
    SET @now = SYSUTCDATETIME();
    UPDATE submission_intents
       SET webhook_status = @status, webhook_attempted_at = @now,
           webhook_delivered_at = CASE WHEN @status = N'delivered' THEN @now END, webhook_error = NULLIF(@error, N''), updated_at = @now,
           last_modified_at = @now
     WHERE intent_id = @id AND completed_at IS NOT NULL AND webhook_status <> N'delivered';
END
IF @verdict = N'told' COMMIT TRANSACTION;
ELSE ROLLBACK TRANSACTION;
SELECT @verdict AS verdict;
