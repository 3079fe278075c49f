-- name: audit_intents
SELECT intent_id, status, attempt_count, max_attempts, attempt_epoch FROM submission_intents ORDER BY intent_id;
