-- name: reap
-- rules: PROCESSING.reap.lapsed_with_tries PROCESSING.reap.lapsed_and_spent
-- READPAST: one stuck row must not hold up the recovery of all the others. How long each was stuck is read before it is
-- cleared, and the UPDATE asks for that same lease once more, lapsed by the clock that is read when all is locked. A
-- recovery counts as a try, or an event that kills its worker would come back for ever. The run is recorded in a row that
-- is there from the beginning; it is made again if somebody has emptied the table.
SET NOCOUNT ON;
DECLARE @limit int = :limit;
DECLARE @now datetime2(7) = SYSUTCDATETIME(), @count bigint;
DECLARE @lapsed TABLE (id bigint NOT NULL, locked_until datetime2(7) NOT NULL, token nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @recovered TABLE (id bigint NOT NULL, tracking_id uniqueidentifier NOT NULL, event_type nvarchar(256) NOT NULL,
    status varchar(11) NOT NULL, retry_count int NOT NULL);
BEGIN TRANSACTION;
INSERT INTO @lapsed (id, locked_until, token)
SELECT TOP (@limit) e.id, e.locked_until, e.lock_token
  FROM fencehold_outbox AS e WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX (fencehold_outbox_lapse_idx))
 WHERE e.status = 'PROCESSING' AND e.locked_until <= @now
 ORDER BY e.locked_until, e.id;
SET @now = SYSUTCDATETIME();
UPDATE fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
   SET status = CASE WHEN fencehold_outbox.retry_count + 1 < fencehold_outbox.max_retries THEN 'PENDING' ELSE 'DEAD_LETTER' END,
       due_at = CASE WHEN fencehold_outbox.retry_count + 1 < fencehold_outbox.max_retries THEN @now ELSE fencehold_outbox.due_at END,
       processed_at = CASE WHEN fencehold_outbox.retry_count + 1 < fencehold_outbox.max_retries THEN NULL ELSE @now END,
       last_error = CONCAT(N'lease expired: ', fencehold_outbox.lock_token, N' held it until ',
                           CONVERT(nvarchar(27), fencehold_outbox.locked_until, 126),
                           N' UTC and neither finished nor renewed (died, hung or was cut off)'),
       retry_count = fencehold_outbox.retry_count + 1, recoveries = fencehold_outbox.recoveries + 1,
       locked_until = NULL, lock_token = NULL
OUTPUT inserted.id, inserted.tracking_id, inserted.event_type, inserted.status, inserted.retry_count
  INTO @recovered (id, tracking_id, event_type, status, retry_count)
  FROM @lapsed AS l
 WHERE fencehold_outbox.id = l.id AND fencehold_outbox.status = 'PROCESSING' AND fencehold_outbox.lock_token = l.token
   AND fencehold_outbox.locked_until = l.locked_until AND fencehold_outbox.locked_until <= @now
OPTION (LOOP JOIN);
SET @count = @@ROWCOUNT;
UPDATE fencehold_outbox_reaper SET ran_at = @now, runs = runs + 1, recovered = recovered + @count;
IF @@ROWCOUNT = 0
    INSERT INTO fencehold_outbox_reaper (one, ran_at, runs, recovered) VALUES (1, @now, 1, @count);
COMMIT TRANSACTION;
SELECT r.id, LOWER(CONVERT(nvarchar(36), r.tracking_id)) AS tracking_id, r.event_type, r.status, r.retry_count,
       l.locked_until, l.token, @now AS now
  FROM @recovered AS r INNER JOIN @lapsed AS l ON l.id = r.id
 ORDER BY l.locked_until, l.id;
