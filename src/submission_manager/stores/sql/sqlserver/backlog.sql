-- name: backlog
-- Of the pending intents that are due, the longest due first and at most so many: how many have been due for :late_s
-- seconds and more, since when the first of them is, how many are past their deadline with no attempt under way, and the clock.
DECLARE @late_s int = :late_s, @limit int = :limit;
SELECT COALESCE(SUM(CASE WHEN next_attempt_at <= DATEADD(second, -@late_s, SYSUTCDATETIME()) THEN 1 ELSE 0 END), 0) AS overdue,
       MIN(next_attempt_at) AS oldest_at,
       COALESCE(SUM(CASE WHEN policy = N'deadline' AND attempt_epoch IS NULL
                          AND DATEADD(second, max_acceptance_seconds, created_at) <= SYSUTCDATETIME()
                         THEN 1 ELSE 0 END), 0) AS past_deadline,
       SYSUTCDATETIME() AS now
  FROM (SELECT TOP (@limit) next_attempt_at, policy, attempt_epoch, created_at, max_acceptance_seconds
          FROM submission_intents
         WHERE next_attempt_at <= SYSUTCDATETIME()
         ORDER BY next_attempt_at, intent_id) AS due;
