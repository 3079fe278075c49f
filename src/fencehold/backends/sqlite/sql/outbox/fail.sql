-- name: fail
-- rules: PROCESSING.fail.may_retry PROCESSING.fail.is_spent
UPDATE fencehold_outbox
   SET status = CASE WHEN a.retry AND retry_count + 1 < max_retries THEN 'FAILED' ELSE 'DEAD_LETTER' END,
       due_at = CASE WHEN a.retry AND retry_count + 1 < max_retries
                     THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now', a.delay) ELSE due_at END,
       processed_at = CASE WHEN a.retry AND retry_count + 1 < max_retries
                           THEN processed_at ELSE strftime('%Y-%m-%dT%H:%M:%fZ', 'now') END,
       retry_count = retry_count + 1, recoveries = 0, last_error = a.error, locked_until = NULL, lock_token = NULL
  FROM (SELECT json_extract(value, '$[0]') AS key_id, json_extract(value, '$[1]') AS token,
               json_extract(value, '$[2]') AS error, json_extract(value, '$[3]') AS delay,
               json_extract(value, '$[4]') AS retry
          FROM json_each(:failures)) AS a
 WHERE id = a.key_id AND lock_token = a.token AND status = 'PROCESSING'
   AND locked_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING id, status;
