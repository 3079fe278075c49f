-- name: intents
SELECT intent_id, status, attempt_count, max_attempts, attempt_epoch AS marker_epoch FROM submission_intents ORDER BY intent_id;
