-- name: progress
SELECT intent_id, status, attempt_count FROM submission_intents WHERE intent_id IN (SELECT value FROM json_each(:ids));
