-- name: delete
-- rules: live.delete.is_holder
DELETE FROM fencehold_items
 WHERE kind = :kind AND id = :id AND holder_id = :holder AND token = :token
   AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING id;
