-- name: claim_in_order
-- rules: PROCESSING.complete.is_holder PENDING.claim.is_due FAILED.claim.is_due
-- As `claim`; and of each aggregate only the oldest unfinished event, and none while another of it is held. Claims in
-- order take turns (the application lock ends with the transaction): two that ran at once could not see each other's.
-- Events that are added, renewed or finished meanwhile take no turn. So who stands in the way is asked twice. First as
-- things stand, committed or not: an event that is being added or renewed is in the way at once, and is not waited for;
-- READPAST would not see it. Then, in the UPDATE, as things are committed: what was seen as finished may be undone yet,
-- and the transaction that finishes it is a short one. Both questions repeat the condition of their index, and so does that
-- for a suspect (retry_count > 0, though it asks for more).
-- In a list, texts are written as `listed` in params.py writes them.
SET NOCOUNT ON;
DECLARE @keys nvarchar(max) = :keys, @limit int = :limit, @token nvarchar(400) = :token, @lease_us bigint = :lease_us,
        @types nvarchar(max) = :types, @isolated int = :isolated, @suspects int = :suspects,
        @patience_ms int = :patience_ms;
DECLARE @now datetime2(7), @until datetime2(7), @locked int, @found int, @got int;
DECLARE @turn nvarchar(255) = CONCAT(N'fencehold/', OBJECT_ID(N'fencehold_outbox'), N'/order');
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
EXEC @got = sp_getapplock @Resource = @turn, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @patience_ms;
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
IF @got >= 0
BEGIN
    SET @now = SYSUTCDATETIME();
    INSERT INTO @chosen (id, is_pending)
    SELECT TOP (@suspects) e.id, 1
      FROM fencehold_outbox AS e WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX (fencehold_outbox_recovered_idx))
     WHERE e.status = 'PENDING' AND e.retry_count > 0 AND e.retry_count > 1 AND e.due_at <= @now
       AND EXISTS (SELECT 1 FROM fencehold_outbox AS s WITH (READUNCOMMITTED) WHERE s.id = e.id AND ISNULL(s.recoveries, 2) > 1)
       AND (DATALENGTH(@types) = 0 OR EXISTS (SELECT 1 FROM @wanted AS w WHERE w.event_type = e.event_type
                                                 AND DATALENGTH(w.event_type) = DATALENGTH(e.event_type)))
       AND (e.aggregate_id IS NULL OR (
            NOT EXISTS (SELECT 1 FROM fencehold_outbox AS o WITH (READUNCOMMITTED)
                         WHERE o.aggregate_id IS NOT NULL AND o.status IN ('PENDING', 'FAILED', 'PROCESSING')
                           AND o.aggregate_id = e.aggregate_id AND DATALENGTH(o.aggregate_id) = DATALENGTH(e.aggregate_id)
                           AND ISNULL(o.aggregate_type, N'') = ISNULL(e.aggregate_type, N'')
                           AND ISNULL(DATALENGTH(o.aggregate_type), 0) = ISNULL(DATALENGTH(e.aggregate_type), 0)
                           AND o.status IN ('PENDING', 'FAILED') AND o.id < e.id)
        AND NOT EXISTS (SELECT 1 FROM fencehold_outbox AS o WITH (READUNCOMMITTED)
                         WHERE o.aggregate_id IS NOT NULL AND o.status IN ('PENDING', 'FAILED', 'PROCESSING')
                           AND o.aggregate_id = e.aggregate_id AND DATALENGTH(o.aggregate_id) = DATALENGTH(e.aggregate_id)
                           AND ISNULL(o.aggregate_type, N'') = ISNULL(e.aggregate_type, N'')
                           AND ISNULL(DATALENGTH(o.aggregate_type), 0) = ISNULL(DATALENGTH(e.aggregate_type), 0)
                           AND o.status = 'PROCESSING')))
     ORDER BY e.due_at, e.id;
    SET @found = @@ROWCOUNT;
    INSERT INTO @chosen (id, is_pending)
    SELECT TOP (@limit - @found) e.id, CASE WHEN e.status = 'PENDING' THEN 1 ELSE 0 END
      FROM fencehold_outbox AS e WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX (fencehold_outbox_due_idx))
     WHERE e.status IN ('PENDING', 'FAILED') AND e.due_at <= @now
       AND (DATALENGTH(@types) = 0 OR EXISTS (SELECT 1 FROM @wanted AS w WHERE w.event_type = e.event_type
                                                 AND DATALENGTH(w.event_type) = DATALENGTH(e.event_type)))
       AND (@isolated = 0 OR e.status = 'FAILED' OR e.retry_count < 2
            OR EXISTS (SELECT 1 FROM fencehold_outbox AS s WITH (READUNCOMMITTED) WHERE s.id = e.id AND s.recoveries < 2))
       AND (e.aggregate_id IS NULL OR (
            NOT EXISTS (SELECT 1 FROM fencehold_outbox AS o WITH (READUNCOMMITTED)
                         WHERE o.aggregate_id IS NOT NULL AND o.status IN ('PENDING', 'FAILED', 'PROCESSING')
                           AND o.aggregate_id = e.aggregate_id AND DATALENGTH(o.aggregate_id) = DATALENGTH(e.aggregate_id)
                           AND ISNULL(o.aggregate_type, N'') = ISNULL(e.aggregate_type, N'')
                           AND ISNULL(DATALENGTH(o.aggregate_type), 0) = ISNULL(DATALENGTH(e.aggregate_type), 0)
                           AND o.status IN ('PENDING', 'FAILED') AND o.id < e.id)
        AND NOT EXISTS (SELECT 1 FROM fencehold_outbox AS o WITH (READUNCOMMITTED)
                         WHERE o.aggregate_id IS NOT NULL AND o.status IN ('PENDING', 'FAILED', 'PROCESSING')
                           AND o.aggregate_id = e.aggregate_id AND DATALENGTH(o.aggregate_id) = DATALENGTH(e.aggregate_id)
                           AND ISNULL(o.aggregate_type, N'') = ISNULL(e.aggregate_type, N'')
                           AND ISNULL(DATALENGTH(o.aggregate_type), 0) = ISNULL(DATALENGTH(e.aggregate_type), 0)
                           AND o.status = 'PROCESSING')))
     ORDER BY e.priority DESC, e.due_at, e.id;
    SET @now = SYSUTCDATETIME();
    SET @until = DATEADD(microsecond, CAST(@lease_us % 1000000 AS int), DATEADD(second, CAST(@lease_us / 1000000 AS int), @now));
    UPDATE fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
       SET status = 'PROCESSING', lock_token = @token, locked_until = @until
    OUTPUT inserted.id, inserted.locked_until, inserted.retry_count, inserted.due_at INTO @claimed (id, locked_until, retry_count, due_at)
     WHERE id IN (SELECT c.id FROM @chosen AS c) AND status IN ('PENDING', 'FAILED') AND due_at <= @now
       AND (fencehold_outbox.aggregate_id IS NULL OR (
            NOT EXISTS (SELECT 1 FROM fencehold_outbox AS o
                         WHERE o.aggregate_id IS NOT NULL AND o.status IN ('PENDING', 'FAILED', 'PROCESSING')
                           AND o.aggregate_id = fencehold_outbox.aggregate_id
                           AND DATALENGTH(o.aggregate_id) = DATALENGTH(fencehold_outbox.aggregate_id)
                           AND ISNULL(o.aggregate_type, N'') = ISNULL(fencehold_outbox.aggregate_type, N'')
                           AND ISNULL(DATALENGTH(o.aggregate_type), 0) = ISNULL(DATALENGTH(fencehold_outbox.aggregate_type), 0)
                           AND o.status IN ('PENDING', 'FAILED') AND o.id < fencehold_outbox.id)
        AND NOT EXISTS (SELECT 1 FROM fencehold_outbox AS o
                         WHERE o.aggregate_id IS NOT NULL AND o.status IN ('PENDING', 'FAILED', 'PROCESSING')
                           AND o.aggregate_id = fencehold_outbox.aggregate_id
                           AND DATALENGTH(o.aggregate_id) = DATALENGTH(fencehold_outbox.aggregate_id)
                           AND ISNULL(o.aggregate_type, N'') = ISNULL(fencehold_outbox.aggregate_type, N'')
                           AND ISNULL(DATALENGTH(o.aggregate_type), 0) = ISNULL(DATALENGTH(fencehold_outbox.aggregate_type), 0)
                           AND o.status = 'PROCESSING')))
    OPTION (LOOP JOIN);
END
COMMIT TRANSACTION;
SELECT c.id, LOWER(CONVERT(nvarchar(36), e.tracking_id)) AS tracking_id, e.event_type, e.payload, c.locked_until, c.retry_count,
       e.max_retries, e.aggregate_id, e.aggregate_type, e.metadata, e.priority, e.created_at, c.due_at,
       CASE WHEN c.retry_count > 0 AND ISNULL(e.recoveries, 1) > 0 THEN (SELECT MAX(h.is_pending) FROM @chosen AS h WHERE h.id = c.id)
            ELSE 0 END AS is_recovered, e.recoveries, NULL AS completed
  FROM @claimed AS c INNER LOOP JOIN fencehold_outbox AS e WITH (READUNCOMMITTED) ON e.id = c.id
UNION ALL
SELECT d.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, d.token FROM @done AS d
 ORDER BY priority DESC, due_at, id;
