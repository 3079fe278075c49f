-- name: pending
-- One page of what is to be done. Its place is text, so that the next page begins exactly there.
SELECT intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at,
       CASE WHEN policy = 'deadline' THEN max_acceptance_seconds END AS deadline_s, next_attempt_at AS place
  FROM submission_intents
 WHERE next_attempt_at IS NOT NULL AND (next_attempt_at, intent_id) > (:after_at, :after_id)
 ORDER BY next_attempt_at, intent_id
 LIMIT :limit;
