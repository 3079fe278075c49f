-- name: expire_unknown
-- only: sqlite, because elsewhere `expire` does it too.
-- A start that another epoch left behind counts as an attempt of its intent, which `expire` ends.
INSERT INTO submission_attempts (intent_id, attempt_number, started_at, finished_at, error)
SELECT intent_id, attempt_count + 1, attempt_started_at, :now, :error
  FROM submission_intents
 WHERE intent_id IN (SELECT value FROM json_each(:ids)) AND status = 'pending' AND policy = 'deadline'
   AND strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '+' || max_acceptance_seconds || ' seconds') <= :now
   AND attempt_epoch IS NOT NULL AND NOT (attempt_epoch = :epoch AND attempt_holder = :holder)
RETURNING intent_id;
