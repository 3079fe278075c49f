-- name: pending
-- One page of what is to be done. The last row is the clock's: it has a snapshot.
(SELECT intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at,
        CASE WHEN policy = 'deadline' THEN max_acceptance_seconds END AS deadline_s, CAST(NULL AS text) AS snapshot
   FROM submission_intents
  WHERE next_attempt_at IS NOT NULL
    AND (next_attempt_at, intent_id) > (CAST(:after_at AS timestamptz), CAST(:after_id AS text))
  ORDER BY next_attempt_at, intent_id
  LIMIT :limit)
UNION ALL
SELECT '', NULL, clock_timestamp(), '', '', NULL, NULL, '';
