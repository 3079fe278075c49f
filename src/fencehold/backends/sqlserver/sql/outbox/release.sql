-- name: release
-- rules: PROCESSING.release.is_holder
-- Lock first, then read the clock, as in `complete`. Of the keys to one event at most one is its holder's: that one is
-- noted before the token is cleared, and the UPDATE asks for it once more.
-- In a list, texts are written as `listed` in params.py writes them.
SET NOCOUNT ON;
DECLARE @keys nvarchar(max) = :keys;
DECLARE @now datetime2(7);
DECLARE @asked TABLE (id bigint NOT NULL, token nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @mine TABLE (id bigint NOT NULL, token nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @given_back TABLE (id bigint NOT NULL);
INSERT INTO @asked (id, token)
SELECT k.id, REPLACE(REPLACE(REPLACE(k.token COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
  FROM OPENJSON(@keys) WITH (id bigint '$.id', token nvarchar(1200) '$.token') AS k;
BEGIN TRANSACTION;
INSERT INTO @mine (id, token)
SELECT a.id, a.token FROM @asked AS a INNER LOOP JOIN fencehold_outbox AS e WITH (UPDLOCK, ROWLOCK) ON e.id = a.id
 WHERE e.lock_token = a.token AND DATALENGTH(e.lock_token) = DATALENGTH(a.token);
SET @now = SYSUTCDATETIME();
UPDATE fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
   SET status = 'PENDING', due_at = @now, locked_until = NULL, lock_token = NULL
OUTPUT inserted.id INTO @given_back (id)
  FROM @mine AS m
 WHERE fencehold_outbox.id = m.id AND fencehold_outbox.lock_token = m.token
   AND DATALENGTH(fencehold_outbox.lock_token) = DATALENGTH(m.token)
   AND fencehold_outbox.status = 'PROCESSING' AND fencehold_outbox.locked_until > @now
OPTION (LOOP JOIN);
COMMIT TRANSACTION;
SELECT m.id, m.token FROM @given_back AS g INNER JOIN @mine AS m ON m.id = g.id;
