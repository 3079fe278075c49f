-- name: save
-- rules: live.save.is_holder
UPDATE fencehold_items
   SET state = coalesce(:state, state),
       state_timestamp = CASE WHEN :state IS NULL THEN state_timestamp
                              ELSE strftime('%Y-%m-%dT%H:%M:%fZ', 'now') END,
       document = coalesce(:document, document)
 WHERE kind = :kind AND id = :id AND holder_id = :holder AND token = :token
   AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING id;
