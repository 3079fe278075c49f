-- name: complete
-- rules: PROCESSING.complete.is_holder
-- Lock first, then read the clock: a completion that had to wait must not count for a lease that lapsed meanwhile. The
-- UPDATE names token, status and expiry itself, so what it changes does not depend on the lock. The token stays: it says
-- who finished. READPAST in the UPDATE: our rows are locked, and a plan that reads others passes over them instead of
-- waiting. It names its table once: with the table in a join as well, a PostgreSQL-based server would ask the row as it was
-- before a wait.
-- In a list, texts are written as `listed` in params.py writes them.
SET NOCOUNT ON;
DECLARE @keys nvarchar(max) = :keys;
DECLARE @now datetime2(7), @locked int;
DECLARE @asked TABLE (id bigint NOT NULL, token nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @done TABLE (id bigint NOT NULL, token nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL);
INSERT INTO @asked (id, token)
SELECT k.id, REPLACE(REPLACE(REPLACE(k.token COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
  FROM OPENJSON(@keys) WITH (id bigint '$.id', token nvarchar(1200) '$.token') AS k;
BEGIN TRANSACTION;
SELECT @locked = COUNT(*) FROM @asked AS a INNER LOOP JOIN fencehold_outbox AS e WITH (UPDLOCK, ROWLOCK) ON e.id = a.id
 WHERE e.lock_token = a.token;
SET @now = SYSUTCDATETIME();
UPDATE fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
   SET status = 'COMPLETED', locked_until = NULL, processed_at = @now
OUTPUT inserted.id, inserted.lock_token INTO @done (id, token)
  FROM @asked AS a
 WHERE fencehold_outbox.id = a.id AND fencehold_outbox.lock_token = a.token
   AND DATALENGTH(fencehold_outbox.lock_token) = DATALENGTH(a.token)
   AND fencehold_outbox.status = 'PROCESSING' AND fencehold_outbox.locked_until > @now
OPTION (LOOP JOIN);
COMMIT TRANSACTION;
SELECT id, token FROM @done;
