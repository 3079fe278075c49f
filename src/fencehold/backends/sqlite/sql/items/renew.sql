-- name: renew
-- rules: live.renew.is_holder
UPDATE fencehold_items
   SET lease_ms = :lease_ms, expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :lease)
  FROM (SELECT json_extract(value, '$[0]') AS key_id, json_extract(value, '$[1]') AS key_holder_id,
               json_extract(value, '$[2]') AS key_token
          FROM json_each(:keys)) AS a
 WHERE kind = :kind AND id = a.key_id AND holder_id = a.key_holder_id AND token = a.key_token
   AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING id, holder_id, token, expires_at;
