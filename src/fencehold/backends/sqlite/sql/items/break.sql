-- name: break
-- rules: absent.break.always free.break.always live.break.is_own_lease
-- Whatever is held afterwards was refused; token 0 means whatever lease this holder has.
UPDATE fencehold_items
   SET holder_id = NULL, leased_at = NULL, lease_ms = NULL, expires_at = NULL
  FROM (SELECT json_extract(value, '$[0]') AS key_id, json_extract(value, '$[1]') AS key_holder_id,
               json_extract(value, '$[2]') AS key_token
          FROM json_each(:keys)) AS a
 WHERE kind = :kind AND id = a.key_id AND holder_id = a.key_holder_id AND a.key_token IN (0, token)
   AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING id;
