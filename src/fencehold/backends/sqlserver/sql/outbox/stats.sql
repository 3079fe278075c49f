-- name: stats
-- Finished events are counted only when asked for: there may be millions. READPAST: a look waits for nobody, and without
-- row versions somebody's open transaction would hold it up; what is being changed this moment is not counted.
SET NOCOUNT ON;
DECLARE @whole int = :whole;
DECLARE @now datetime2(7) = SYSUTCDATETIME();
SELECT (SELECT COUNT_BIG(*) FROM fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
         WHERE status IN ('PENDING', 'FAILED') AND status = 'PENDING') AS pending,
       (SELECT COUNT_BIG(*) FROM fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE status = 'PROCESSING') AS processing,
       (SELECT COUNT_BIG(*) FROM fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
         WHERE @whole = 1 AND status = 'COMPLETED') AS completed,
       (SELECT COUNT_BIG(*) FROM fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
         WHERE status IN ('PENDING', 'FAILED') AND status = 'FAILED') AS failed,
       (SELECT COUNT_BIG(*) FROM fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE status = 'DEAD_LETTER') AS dead_letter,
       (SELECT MIN(due_at) FROM fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
         WHERE status IN ('PENDING', 'FAILED')) AS oldest_due_at,
       (SELECT COUNT_BIG(*) FROM fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
         WHERE status = 'PROCESSING' AND locked_until <= @now) AS lapsed,
       (SELECT ran_at FROM fencehold_outbox_reaper) AS ran_at,
       COALESCE((SELECT runs FROM fencehold_outbox_reaper), 0) AS runs,
       @now AS now;
