-- name: mark
-- The start of an attempt, all of it: who is frozen outside a batch keeps no lock, and inside one there is no client.
-- First the fence, which no takeover passes before this transaction ends (docs/decisions/0011). Then the row, then the
-- clock: time may pass while another has the row. Each UPDATE says itself all that must hold of its row. From the marker
-- on the gateway may have been called: whoever finds the marker of another epoch counts an attempt.
SET NOCOUNT ON;
DECLARE @id nvarchar(400) = :id, @name nvarchar(128) = :name, @holder nvarchar(256) = :holder, @epoch bigint = :epoch,
    @wait_ms int = :wait_ms;
DECLARE @got int = -1, @held int = 0, @there int = 0, @now datetime2(6), @verdict nvarchar(16) = N'lost';
DECLARE @status nvarchar(16), @attempt_count int, @due_at datetime2(7), @started_at datetime2(7), @started_epoch bigint,
    @started_holder nvarchar(256), @payload varbinary(max), @gateway_type nvarchar(16), @gateway_url nvarchar(max),
    @policy nvarchar(16), @max_acceptance_seconds int, @max_attempts int, @terminal_outcomes nvarchar(max),
    @webhook_url nvarchar(max), @webhook_headers nvarchar(max), @webhook_headers_env nvarchar(max),
    @webhook_secret_env nvarchar(max), @target nvarchar(max), @created_at datetime2(7);
DECLARE @fence nvarchar(255) = CONCAT(N'fencehold/', OBJECT_ID(N'submission_manager_leases'), N'/', @name, N'/fence');
BEGIN TRANSACTION;
EXEC @got = sp_getapplock @Resource = @fence, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = @wait_ms;
SELECT @held = 1 FROM submission_manager_leases WITH (READCOMMITTEDLOCK)
 WHERE lease_name = @name AND holder_id = @holder AND lease_epoch = @epoch AND expires_at > SYSUTCDATETIME();
IF @got < 0 SET @verdict = N'busy';
ELSE IF @held = 1
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
           @started_epoch = attempt_epoch, @started_holder = attempt_holder, @payload = payload, @gateway_type = gateway_type,
           @gateway_url = gateway_url, @policy = policy, @max_acceptance_seconds = max_acceptance_seconds,
           @max_attempts = max_attempts, @terminal_outcomes = terminal_outcomes, @webhook_url = webhook_url,
           @webhook_headers = webhook_headers, @webhook_headers_env = webhook_headers_env,
           @webhook_secret_env = webhook_secret_env, @target = submission_target, @created_at = created_at
      FROM submission_intents WHERE intent_id = @id;
END
IF @verdict IN (N'lost', N'busy') ROLLBACK TRANSACTION;
ELSE COMMIT TRANSACTION;
SELECT @verdict AS verdict, @now AS now, @status AS status, @attempt_count AS attempt_count, @due_at AS next_attempt_at,
       @started_at AS attempt_started_at, @started_epoch AS attempt_epoch, @started_holder AS attempt_holder, @payload AS payload,
       @gateway_type AS gateway_type, @gateway_url AS gateway_url, @policy AS policy,
       @max_acceptance_seconds AS max_acceptance_seconds, @max_attempts AS max_attempts,
       @terminal_outcomes AS terminal_outcomes, @webhook_url AS webhook_url, @webhook_headers AS webhook_headers,
       @webhook_headers_env AS webhook_headers_env, @webhook_secret_env AS webhook_secret_env,
       @target AS submission_target, @created_at AS created_at;
