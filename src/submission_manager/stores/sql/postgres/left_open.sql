-- name: left_open
-- Attempts that another term began and nobody has recorded, the longest begun first, each with how many there are.
SELECT intent_id, attempt_count + 1 AS attempt_number, count(*) OVER () AS attempts
  FROM submission_intents
 WHERE next_attempt_at IS NOT NULL AND attempt_epoch IS NOT NULL
   AND (attempt_epoch <> :epoch OR attempt_holder <> :holder)
 ORDER BY attempt_started_at, intent_id
 LIMIT :limit;
