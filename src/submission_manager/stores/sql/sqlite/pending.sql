-- name: pending
-- One page of what is to be done.
SELECT intent_id, next_attempt_at, last_modified_at, gateway_url
  FROM submission_intents
 WHERE next_attempt_at IS NOT NULL AND (next_attempt_at, intent_id) > (:after_at, :after_id)
 ORDER BY next_attempt_at, intent_id
 LIMIT :limit;
