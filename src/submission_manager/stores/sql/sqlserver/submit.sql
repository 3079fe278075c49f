-- name: submit
-- Many intents of one contract in one statement; those whose id is there already are left alone and not answered.
-- Each row's hash and payload stand one after the other in @bytes. The clock is read once and for all of a row's times.
-- Of two who store the same new id at once one violates the key, and none of its rows are stored: it asks again, and
-- then sees the other's. What the contract does not have comes as 0 or as no text: of a NULL the driver would first have
-- to ask the server for its type.
SET NOCOUNT ON;
DECLARE @given nvarchar(max) = :given, @bytes varbinary(max) = :bytes, @target nvarchar(max) = :target,
    @gateway_type nvarchar(16) = :gateway_type, @gateway_url nvarchar(max) = :gateway_url, @policy nvarchar(16) = :policy,
    @max_acceptance_seconds int = :max_acceptance_seconds, @max_attempts int = :max_attempts,
    @terminal_outcomes nvarchar(max) = :terminal_outcomes, @webhook_url nvarchar(max) = :webhook_url,
    @webhook_headers nvarchar(max) = :webhook_headers, @webhook_headers_env nvarchar(max) = :webhook_headers_env,
    @webhook_secret_env nvarchar(max) = :webhook_secret_env, @webhook_status nvarchar(16) = :webhook_status;
DECLARE @now datetime2(6);
DECLARE @news TABLE (intent_id nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY, hash_from int NOT NULL,
    payload_length int NOT NULL);
DECLARE @stored TABLE (intent_id nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL, created_at datetime2(7) NOT NULL);
INSERT INTO @news (intent_id, hash_from, payload_length)
SELECT REPLACE(REPLACE(REPLACE(g.intent_id COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%'),
       g.hash_from, g.payload_length
  FROM OPENJSON(@given) WITH (intent_id nvarchar(1200) '$.id', hash_from int '$.from', payload_length int '$.length') AS g;
SET @now = SYSUTCDATETIME();
INSERT INTO submission_intents
       (intent_id, submission_target, payload, payload_hash, gateway_type, gateway_url, policy, max_acceptance_seconds,
        max_attempts, terminal_outcomes, webhook_url, webhook_headers, webhook_headers_env, webhook_secret_env, webhook_status,
        status, attempt_count, created_at, updated_at, last_modified_at, next_attempt_at)
OUTPUT inserted.intent_id, inserted.created_at INTO @stored (intent_id, created_at)
SELECT n.intent_id, @target, CASE WHEN n.payload_length > 0 THEN SUBSTRING(@bytes, n.hash_from + 32, n.payload_length) END,
       SUBSTRING(@bytes, n.hash_from, 32), @gateway_type, @gateway_url, @policy, NULLIF(@max_acceptance_seconds, 0),
       NULLIF(@max_attempts, 0), @terminal_outcomes, NULLIF(@webhook_url, N''), NULLIF(@webhook_headers, N''),
       NULLIF(@webhook_headers_env, N''), NULLIF(@webhook_secret_env, N''), NULLIF(@webhook_status, N''),
       N'pending', 0, @now, @now, @now, @now
  FROM @news AS n
 WHERE NOT EXISTS (SELECT 1 FROM submission_intents AS i WHERE i.intent_id = n.intent_id)
 ORDER BY n.intent_id;
SELECT intent_id, created_at FROM @stored;
