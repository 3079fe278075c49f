-- name: progress
SELECT intent_id, status, attempt_count FROM submission_intents WHERE intent_id = ANY (CAST(:ids AS text[]));
