-- name: settle
-- rules: accepted.is_past_deadline accepted.always rejected.is_listed any.is_one_shot any.is_last any.retry_is_past_deadline any.always
-- The record of an attempt, all of it, fenced as its start is. @verdicts is what the rules make of this attempt, each
-- with the instant from which it holds: what remains to be decided here is the time, read when the row is ours. The
-- marker that the record is for must stand: without it somebody else has counted the attempt. An end is for ever. What
-- was not said comes as no text.
SET NOCOUNT ON;
DECLARE @id nvarchar(400) = :id, @number int = :number, @marker_epoch bigint = :marker_epoch,
    @marker_holder nvarchar(256) = :marker_holder, @verdicts nvarchar(max) = :verdicts, @retry_us bigint = :retry_us,
    @outcome_status nvarchar(16) = :outcome_status, @outcome_reason nvarchar(400) = :outcome_reason,
    @error nvarchar(2000) = :error, @name nvarchar(128) = :name, @holder nvarchar(256) = :holder, @epoch bigint = :epoch,
    @wait_ms int = :wait_ms;
DECLARE @got int = -1, @held int = 0, @there int = 0, @now datetime2(6), @verdict nvarchar(16) = N'lost';
DECLARE @status nvarchar(16), @exhausted_reason nvarchar(32), @due_at datetime2(7), @appended int;
DECLARE @fence nvarchar(255) = CONCAT(N'fencehold/', OBJECT_ID(N'submission_manager_leases'), N'/', @name, N'/fence');
BEGIN TRANSACTION;
EXEC @got = sp_getapplock @Resource = @fence, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = @wait_ms;
SELECT @held = 1 FROM submission_manager_leases WITH (READCOMMITTEDLOCK)
 WHERE lease_name = @name AND holder_id = @holder AND lease_epoch = @epoch AND expires_at > SYSUTCDATETIME();
IF @got < 0 SET @verdict = N'busy';
ELSE IF @held = 1
BEGIN
    SET @verdict = N'unmarked';
    SELECT @there = 1 FROM submission_intents WITH (UPDLOCK, ROWLOCK) WHERE intent_id = @id;
    SET @now = SYSUTCDATETIME();
    SELECT TOP (1) @status = v.status, @exhausted_reason = v.exhausted_reason
      FROM OPENJSON(@verdicts) WITH (from_at datetime2(7) '$.from_at', status nvarchar(16) '$.status',
                                     exhausted_reason nvarchar(32) '$.exhausted_reason') AS v
     WHERE v.from_at <= @now
     ORDER BY v.from_at DESC;
    IF @status = N'pending'
        SET @due_at = DATEADD(microsecond, CAST(@retry_us % 1000000 AS int), DATEADD(second, CAST(@retry_us / 1000000 AS int), @now));
    INSERT INTO submission_attempts (intent_id, attempt_number, started_at, finished_at, outcome_status, outcome_reason, error)
    SELECT intent_id, @number, attempt_started_at, @now, NULLIF(@outcome_status, N''), NULLIF(@outcome_reason, N''),
           NULLIF(@error, N'')
      FROM submission_intents
     WHERE intent_id = @id AND status = N'pending' AND attempt_count = @number - 1 AND attempt_epoch = @marker_epoch
       AND attempt_holder = @marker_holder;
    SET @appended = @@ROWCOUNT;
    UPDATE submission_intents
       SET status = @status, attempt_count = @number, next_attempt_at = @due_at,
           completed_at = CASE WHEN @status <> N'pending' THEN @now END,
           final_outcome_status = CASE WHEN @status <> N'pending' THEN NULLIF(@outcome_status, N'') END,
           final_outcome_reason = CASE WHEN @status <> N'pending' THEN NULLIF(@outcome_reason, N'') END,
           exhausted_reason = @exhausted_reason, attempt_started_at = NULL, attempt_epoch = NULL, attempt_holder = NULL,
           updated_at = @now, last_modified_at = @now
     WHERE intent_id = @id AND status = N'pending' AND attempt_count = @number - 1 AND attempt_epoch = @marker_epoch
       AND attempt_holder = @marker_holder AND @appended = 1;
    IF @@ROWCOUNT > 0 SET @verdict = N'settled';
END
IF @verdict = N'settled' COMMIT TRANSACTION;
ELSE ROLLBACK TRANSACTION;
SELECT @verdict AS verdict, @now AS now, @status AS status, @exhausted_reason AS exhausted_reason, @due_at AS next_attempt_at;
