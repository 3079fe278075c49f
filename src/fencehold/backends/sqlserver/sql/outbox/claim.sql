-- name: claim
-- rules: PROCESSING.complete.is_holder PENDING.claim.is_due FAILED.claim.is_due
-- Completes the last batch and claims the next, in one transaction and one round trip; a deadlock undoes both.
-- READPAST, UPDLOCK, ROWLOCK: what another claims this moment is passed over, not waited for, and what we chose nobody
-- else can choose. That is for speed only. Each UPDATE asks for everything once more of the row it changes, so where the
-- hints mean nothing it waits for the other, sees that the event is taken, and leaves it: no event goes to two. It names
-- its table once: with the table in a join as well, a PostgreSQL-based server would ask the row as it was before the wait.
-- READPAST in the UPDATEs too: a plan that reads the rows of others must not wait for them.
-- READCOMMITTEDLOCK: with row versions READPAST is refused without it. The index is named because a plan that reads the
-- table another way would lock, for the sort, every event that is due. Each priority is searched by itself: what is due
-- later in one is not walked through to reach the next. The clock is read again once all is locked. What never changes
-- about an event is read after the commit, which no reader of the answer can hold up, and waits for nobody either.
-- A suspect was recovered twice in a row: a worker has one at a time. Its question repeats the condition of the index, which
-- does not hold `recoveries`: that is read from the row, and only of events with two tries behind them.
-- In a list, texts are written as `listed` in params.py writes them.
SET NOCOUNT ON;
DECLARE @keys nvarchar(max) = :keys, @limit int = :limit, @token nvarchar(400) = :token, @lease_us bigint = :lease_us,
        @types nvarchar(max) = :types, @isolated int = :isolated, @suspects int = :suspects;
DECLARE @now datetime2(7), @until datetime2(7), @locked int, @found int, @level smallint;
DECLARE @asked TABLE (id bigint NOT NULL, token nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @done TABLE (id bigint NOT NULL, token nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @wanted TABLE (event_type nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @chosen TABLE (id bigint NOT NULL, is_pending int NOT NULL);
DECLARE @claimed TABLE (id bigint NOT NULL, locked_until datetime2(7) NOT NULL, retry_count int NOT NULL, due_at datetime2(7) NOT NULL);
IF DATALENGTH(@types) > 0
    INSERT INTO @wanted (event_type)
    SELECT REPLACE(REPLACE(REPLACE(w.event_type COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
      FROM OPENJSON(@types) WITH (event_type nvarchar(768) '$.event_type') AS w;
BEGIN TRANSACTION;
IF DATALENGTH(@keys) > 0
BEGIN
    INSERT INTO @asked (id, token)
    SELECT k.id, REPLACE(REPLACE(REPLACE(k.token COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
      FROM OPENJSON(@keys) WITH (id bigint '$.id', token nvarchar(1200) '$.token') AS k;
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
END
SET @now = SYSUTCDATETIME();
INSERT INTO @chosen (id, is_pending)
SELECT TOP (@suspects) e.id, 1
  FROM fencehold_outbox AS e WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX (fencehold_outbox_recovered_idx))
 WHERE e.status = 'PENDING' AND e.retry_count > 0 AND e.retry_count > 1 AND e.due_at <= @now
   AND EXISTS (SELECT 1 FROM fencehold_outbox AS s WITH (READUNCOMMITTED) WHERE s.id = e.id AND ISNULL(s.recoveries, 2) > 1)
   AND (DATALENGTH(@types) = 0 OR EXISTS (SELECT 1 FROM @wanted AS w WHERE w.event_type = e.event_type
                                             AND DATALENGTH(w.event_type) = DATALENGTH(e.event_type)))
 ORDER BY e.due_at, e.id;
SET @found = @@ROWCOUNT;
SELECT @level = MAX(e.priority)
  FROM fencehold_outbox AS e WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX (fencehold_outbox_due_idx))
 WHERE e.status IN ('PENDING', 'FAILED');
WHILE @found < @limit AND @level IS NOT NULL
BEGIN
    INSERT INTO @chosen (id, is_pending)
    SELECT TOP (@limit - @found) e.id, CASE WHEN e.status = 'PENDING' THEN 1 ELSE 0 END
      FROM fencehold_outbox AS e WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX (fencehold_outbox_due_idx))
     WHERE e.status IN ('PENDING', 'FAILED') AND e.priority = @level AND e.due_at <= @now
       AND (DATALENGTH(@types) = 0 OR EXISTS (SELECT 1 FROM @wanted AS w WHERE w.event_type = e.event_type
                                                 AND DATALENGTH(w.event_type) = DATALENGTH(e.event_type)))
       AND (@isolated = 0 OR e.status = 'FAILED' OR e.retry_count < 2
            OR EXISTS (SELECT 1 FROM fencehold_outbox AS s WITH (READUNCOMMITTED) WHERE s.id = e.id AND s.recoveries < 2))
     ORDER BY e.due_at, e.id;
    SET @found = @found + @@ROWCOUNT;
    IF @found < @limit
        SELECT @level = MAX(e.priority)
          FROM fencehold_outbox AS e WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX (fencehold_outbox_due_idx))
         WHERE e.status IN ('PENDING', 'FAILED') AND e.priority < @level;
END
SET @now = SYSUTCDATETIME();
SET @until = DATEADD(microsecond, CAST(@lease_us % 1000000 AS int), DATEADD(second, CAST(@lease_us / 1000000 AS int), @now));
UPDATE fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
   SET status = 'PROCESSING', lock_token = @token, locked_until = @until
OUTPUT inserted.id, inserted.locked_until, inserted.retry_count, inserted.due_at INTO @claimed (id, locked_until, retry_count, due_at)
 WHERE id IN (SELECT c.id FROM @chosen AS c) AND status IN ('PENDING', 'FAILED') AND due_at <= @now
OPTION (LOOP JOIN);
COMMIT TRANSACTION;
SELECT c.id, LOWER(CONVERT(nvarchar(36), e.tracking_id)) AS tracking_id, e.event_type, e.payload, c.locked_until, c.retry_count,
       e.max_retries, e.aggregate_id, e.aggregate_type, e.metadata, e.priority, e.created_at, c.due_at,
       CASE WHEN c.retry_count > 0 AND ISNULL(e.recoveries, 1) > 0 THEN (SELECT MAX(h.is_pending) FROM @chosen AS h WHERE h.id = c.id)
            ELSE 0 END AS is_recovered, e.recoveries, NULL AS completed
  FROM @claimed AS c INNER LOOP JOIN fencehold_outbox AS e WITH (READUNCOMMITTED) ON e.id = c.id
UNION ALL
SELECT d.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, d.token FROM @done AS d
 ORDER BY priority DESC, due_at, id;
