-- name: expire
-- rules: any.retry_is_past_deadline
-- Of these intents those past their deadline are over, fenced as the start of an attempt is. A start that another epoch
-- left behind is counted as an attempt first; a start of this epoch was never answered, so nobody has called the gateway
-- for it. What somebody else has locked is passed over, and no reading waits for it. One row for each intent asked for:
-- is_over says that it was ended here; without a status it is locked, or not there.
SET NOCOUNT ON;
DECLARE @ids nvarchar(max) = :ids, @error nvarchar(2000) = :error, @name nvarchar(128) = :name, @holder nvarchar(256) = :holder,
    @epoch bigint = :epoch, @wait_ms int = :wait_ms;
DECLARE @got int = -1, @held int = 0, @now datetime2(6), @verdict nvarchar(16) = N'lost';
DECLARE @given TABLE (intent_id nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
DECLARE @found TABLE (intent_id nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY, unknown int NOT NULL);
DECLARE @fence nvarchar(255) = CONCAT(N'fencehold/', OBJECT_ID(N'submission_manager_leases'), N'/', @name, N'/fence');
INSERT INTO @given (intent_id)
SELECT REPLACE(REPLACE(REPLACE(g.intent_id COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
  FROM OPENJSON(@ids) WITH (intent_id nvarchar(1200) '$.id') AS g;
BEGIN TRANSACTION;
EXEC @got = sp_getapplock @Resource = @fence, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = @wait_ms;
SELECT @held = 1 FROM submission_manager_leases WITH (READCOMMITTEDLOCK)
 WHERE lease_name = @name AND holder_id = @holder AND lease_epoch = @epoch AND expires_at > SYSUTCDATETIME();
IF @got < 0 SET @verdict = N'busy';
ELSE IF @held = 1
BEGIN
    SET @verdict = N'expired';
    INSERT INTO @found (intent_id, unknown)
    SELECT intent_id, CASE WHEN attempt_epoch IS NULL OR (attempt_epoch = @epoch AND attempt_holder = @holder) THEN 0 ELSE 1 END
      FROM submission_intents WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK)
     WHERE intent_id IN (SELECT intent_id FROM @given) AND status = N'pending' AND policy = N'deadline'
       AND DATEADD(second, max_acceptance_seconds, created_at) <= SYSUTCDATETIME();
    SET @now = SYSUTCDATETIME();
    INSERT INTO submission_attempts (intent_id, attempt_number, started_at, finished_at, error)
    SELECT intent_id, attempt_count + 1, attempt_started_at, @now, @error
      FROM submission_intents
     WHERE intent_id IN (SELECT intent_id FROM @found WHERE unknown = 1) AND status = N'pending';
    UPDATE submission_intents
       SET status = N'exhausted', exhausted_reason = N'deadline_exceeded', next_attempt_at = NULL, completed_at = @now,
           attempt_count = attempt_count
                           + CASE WHEN intent_id IN (SELECT intent_id FROM @found WHERE unknown = 1) THEN 1 ELSE 0 END,
           attempt_started_at = NULL, attempt_epoch = NULL, attempt_holder = NULL, updated_at = @now, last_modified_at = @now
     WHERE intent_id IN (SELECT intent_id FROM @found) AND status = N'pending';
END
IF @verdict = N'expired' COMMIT TRANSACTION;
ELSE ROLLBACK TRANSACTION;
SELECT @verdict AS verdict, CASE WHEN f.intent_id IS NULL THEN 0 ELSE 1 END AS is_over, COALESCE(f.unknown, 0) AS unknown,
       g.intent_id, i.submission_target, i.created_at, i.status, i.attempt_count, i.completed_at, i.final_outcome_reason,
       i.exhausted_reason, i.webhook_url, i.webhook_headers, i.webhook_headers_env, i.webhook_secret_env
  FROM @given AS g
  LEFT JOIN @found AS f ON f.intent_id = g.intent_id
  LEFT JOIN submission_intents AS i WITH (READPAST, READCOMMITTEDLOCK) ON i.intent_id = g.intent_id;
