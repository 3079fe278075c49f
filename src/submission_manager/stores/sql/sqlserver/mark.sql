-- name: mark
-- The start of an attempt, all of it: who is frozen outside a batch keeps no lock, and inside one there is no client.
-- First the fence, which no takeover passes before this transaction ends (docs/decisions/0011). Then the row, then the
-- clock: time may pass while another has the row. Each UPDATE says itself all that must hold of its row. From the marker
-- on the gateway may have been called: whoever finds the marker of another epoch counts an attempt.
SET NOCOUNT ON;
DECLARE @id nvarchar(400) = :id, @name nvarchar(128) = :name, @holder nvarchar(256) = :holder, @epoch bigint = :epoch,
    @wait_ms int = :wait_ms;
DECLARE @got int = -1, @seen bigint = 0, @there int = 0, @now datetime2(6), @verdict nvarchar(16) = N'lost';
DECLARE @status nvarchar(16), @attempt_count int, @due_at datetime2(7), @started_at datetime2(7), @started_epoch bigint,
    @started_holder nvarchar(256);
DECLARE @fence nvarchar(255) = CONCAT(N'fencehold/', OBJECT_ID(N'submission_manager_leases'), N'/', @name, N'/fence');
BEGIN TRANSACTION;
EXEC @got = sp_getapplock @Resource = @fence, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = @wait_ms;
SELECT @seen = lease_epoch FROM submission_manager_leases WITH (READCOMMITTEDLOCK)
 WHERE lease_name = @name AND holder_id = @holder AND lease_epoch = @epoch AND expires_at > SYSUTCDATETIME();
IF @got < 0 SET @verdict = N'busy';
ELSE IF @seen = @epoch
BEGIN
    SET @verdict = N'not_now';
    SELECT @there = 1 FROM submission_intents WITH (UPDLOCK, ROWLOCK) WHERE intent_id = @id;
    SET @now = SYSUTCDATETIME();
    UPDATE submission_intents
       SET attempt_started_at = @now, attempt_epoch = @epoch, attempt_holder = @holder, updated_at = @now,
           last_modified_at = @now
     WHERE intent_id = @id AND status = N'pending' AND attempt_epoch IS NULL AND next_attempt_at <= @now
       AND (policy <> N'deadline' OR max_acceptance_seconds IS NULL
            OR DATEADD(second, max_acceptance_seconds, created_at) > @now);
    IF @@ROWCOUNT > 0 SET @verdict = N'started';
    IF @verdict = N'not_now'
    BEGIN
        UPDATE submission_intents
           SET status = N'exhausted', exhausted_reason = N'deadline_exceeded', completed_at = @now, next_attempt_at = NULL,
               updated_at = @now, last_modified_at = @now
         WHERE intent_id = @id AND status = N'pending' AND attempt_epoch IS NULL AND policy = N'deadline'
           AND DATEADD(second, max_acceptance_seconds, created_at) <= @now;
        IF @@ROWCOUNT > 0 SET @verdict = N'over';
    END
    SELECT @status = status, @attempt_count = attempt_count, @due_at = next_attempt_at, @started_at = attempt_started_at,
           @started_epoch = attempt_epoch, @started_holder = attempt_holder
      FROM submission_intents WHERE intent_id = @id;
END
IF @verdict IN (N'lost', N'busy') ROLLBACK TRANSACTION;
ELSE COMMIT TRANSACTION;
SELECT @verdict AS verdict, @now AS now, @status AS status, @attempt_count AS attempt_count, @due_at AS due_at,
       @started_at AS started_at, @started_epoch AS started_epoch, @started_holder AS started_holder, i.payload,
       i.gateway_type, i.gateway_url, i.policy, i.max_acceptance_seconds, i.max_attempts, i.terminal_outcomes, i.webhook_url,
       i.webhook_headers, i.webhook_headers_env, i.webhook_secret_env, i.submission_target, i.created_at
  FROM (SELECT 1 AS one) AS always
  LEFT JOIN submission_intents AS i ON i.intent_id = @id AND @verdict NOT IN (N'lost', N'busy');
