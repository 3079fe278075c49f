-- name: fail
-- rules: PROCESSING.fail.may_retry PROCESSING.fail.is_spent
-- Lock first, then read the clock, as in `complete`. Of the keys to one event at most one is its holder's: that one is
-- noted before the token is cleared, and the UPDATE asks for it once more.
-- In a list, texts are written as `listed` in params.py writes them, an error also with its line ends and tabs.
SET NOCOUNT ON;
DECLARE @failures nvarchar(max) = :failures;
DECLARE @now datetime2(7);
DECLARE @asked TABLE (id bigint NOT NULL, token nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL, error nvarchar(max) NOT NULL,
    delay_us bigint NOT NULL, retry int NOT NULL);
DECLARE @mine TABLE (id bigint NOT NULL, token nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL, error nvarchar(max) NOT NULL,
    delay_us bigint NOT NULL, retry int NOT NULL);
DECLARE @failed TABLE (id bigint NOT NULL, status varchar(11) NOT NULL);
INSERT INTO @asked (id, token, error, delay_us, retry)
SELECT f.id, REPLACE(REPLACE(REPLACE(f.token COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%'),
       REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(f.error COLLATE Latin1_General_BIN2,
               N'%0A', NCHAR(10)), N'%0D', NCHAR(13)), N'%09', NCHAR(9)), N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%'),
       f.delay_us, f.retry
  FROM OPENJSON(@failures) WITH (id bigint '$.id', token nvarchar(1200) '$.token', error nvarchar(max) '$.error',
                                 delay_us bigint '$.delay_us', retry int '$.retry') AS f;
BEGIN TRANSACTION;
INSERT INTO @mine (id, token, error, delay_us, retry)
SELECT a.id, a.token, a.error, a.delay_us, a.retry
  FROM @asked AS a INNER LOOP JOIN fencehold_outbox AS e WITH (UPDLOCK, ROWLOCK) ON e.id = a.id
 WHERE e.lock_token = a.token AND DATALENGTH(e.lock_token) = DATALENGTH(a.token);
SET @now = SYSUTCDATETIME();
UPDATE fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
   SET status = CASE WHEN m.retry = 1 AND fencehold_outbox.retry_count + 1 < fencehold_outbox.max_retries
                     THEN 'FAILED' ELSE 'DEAD_LETTER' END,
       due_at = CASE WHEN m.retry = 1 AND fencehold_outbox.retry_count + 1 < fencehold_outbox.max_retries
                     THEN DATEADD(microsecond, CAST(m.delay_us % 1000000 AS int), DATEADD(second, CAST(m.delay_us / 1000000 AS int), @now))
                     ELSE fencehold_outbox.due_at END,
       processed_at = CASE WHEN m.retry = 1 AND fencehold_outbox.retry_count + 1 < fencehold_outbox.max_retries THEN NULL ELSE @now END,
       retry_count = fencehold_outbox.retry_count + 1, recoveries = 0, last_error = m.error, locked_until = NULL, lock_token = NULL
OUTPUT inserted.id, inserted.status INTO @failed (id, status)
  FROM @mine AS m
 WHERE fencehold_outbox.id = m.id AND fencehold_outbox.lock_token = m.token
   AND DATALENGTH(fencehold_outbox.lock_token) = DATALENGTH(m.token)
   AND fencehold_outbox.status = 'PROCESSING' AND fencehold_outbox.locked_until > @now
OPTION (LOOP JOIN);
COMMIT TRANSACTION;
SELECT m.id, m.token, f.status FROM @failed AS f INNER JOIN @mine AS m ON m.id = f.id;
