-- name: complete
-- rules: PROCESSING.complete.is_holder
-- The token stays: it says who finished.
UPDATE fencehold_outbox
   SET status = 'COMPLETED', locked_until = NULL, processed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  FROM (SELECT json_extract(value, '$[0]') AS key_id, json_extract(value, '$[1]') AS token FROM json_each(:keys)) AS a
 WHERE id = a.key_id AND lock_token = a.token AND status = 'PROCESSING'
   AND locked_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING id;
