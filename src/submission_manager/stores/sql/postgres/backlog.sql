-- name: backlog
-- Of the pending intents that are due, the longest due first and at most so many: how many have been due for :late_s
-- seconds and more, since when the first of them is, how many are past their deadline with no attempt under way, and the clock.
SELECT count(*) FILTER (WHERE next_attempt_at <= statement_timestamp() - make_interval(secs => :late_s)) AS overdue,
       min(next_attempt_at) AS oldest_at,
       count(*) FILTER (WHERE policy = 'deadline' AND attempt_epoch IS NULL
                          AND created_at + make_interval(secs => max_acceptance_seconds) <= statement_timestamp()) AS past_deadline,
       statement_timestamp() AS now
  FROM (SELECT next_attempt_at, policy, attempt_epoch, created_at, max_acceptance_seconds
          FROM submission_intents
         WHERE next_attempt_at <= statement_timestamp()
         ORDER BY next_attempt_at, intent_id
         LIMIT :limit) AS due;
