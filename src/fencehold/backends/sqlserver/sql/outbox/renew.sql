-- name: renew
-- rules: PROCESSING.renew.is_holder
-- Lock first, then read the clock: a renewal that had to wait must not revive a lease that lapsed meanwhile. READPAST: one
-- stuck row must not hold up the renewal of all the others. The UPDATE names token, status and expiry itself, so what it
-- changes does not depend on the lock.
-- In a list, texts are written as `listed` in params.py writes them.
SET NOCOUNT ON;
DECLARE @keys nvarchar(max) = :keys, @lease_us bigint = :lease_us;
DECLARE @now datetime2(7), @until datetime2(7);
DECLARE @asked TABLE (id bigint NOT NULL, token nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @mine TABLE (id bigint NOT NULL, token nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @renewed TABLE (id bigint NOT NULL, token nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL, locked_until datetime2(7) NOT NULL);
INSERT INTO @asked (id, token)
SELECT k.id, REPLACE(REPLACE(REPLACE(k.token COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
  FROM OPENJSON(@keys) WITH (id bigint '$.id', token nvarchar(1200) '$.token') AS k;
BEGIN TRANSACTION;
INSERT INTO @mine (id, token)
SELECT a.id, a.token
  FROM @asked AS a INNER LOOP JOIN fencehold_outbox AS e WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK) ON e.id = a.id
 WHERE e.lock_token = a.token AND DATALENGTH(e.lock_token) = DATALENGTH(a.token);
SET @now = SYSUTCDATETIME();
SET @until = DATEADD(microsecond, CAST(@lease_us % 1000000 AS int), DATEADD(second, CAST(@lease_us / 1000000 AS int), @now));
UPDATE fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
   SET locked_until = @until
OUTPUT inserted.id, inserted.lock_token, inserted.locked_until INTO @renewed (id, token, locked_until)
  FROM @mine AS m
 WHERE fencehold_outbox.id = m.id AND fencehold_outbox.lock_token = m.token
   AND DATALENGTH(fencehold_outbox.lock_token) = DATALENGTH(m.token)
   AND fencehold_outbox.status = 'PROCESSING' AND fencehold_outbox.locked_until > @now
OPTION (LOOP JOIN);
COMMIT TRANSACTION;
SELECT id, token, locked_until FROM @renewed;
