-- name: attempts
SELECT intent_id, attempt_number FROM submission_attempts ORDER BY intent_id, attempt_number;
