-- name: release
-- rules: PROCESSING.release.is_holder
UPDATE fencehold_outbox
   SET status = 'PENDING', due_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), locked_until = NULL, lock_token = NULL
  FROM (SELECT json_extract(value, '$[0]') AS key_id, json_extract(value, '$[1]') AS token FROM json_each(:keys)) AS a
 WHERE id = a.key_id AND lock_token = a.token AND status = 'PROCESSING'
   AND locked_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING id;
