-- name: purge
-- Only finished events; a dead letter only when it is named.
DELETE FROM fencehold_outbox
 WHERE id IN (SELECT id FROM fencehold_outbox
               WHERE status IN ('COMPLETED', 'DEAD_LETTER')
                 AND status IN (SELECT value FROM json_each(coalesce(:statuses, '["COMPLETED"]')))
                 AND (:types IS NULL OR event_type IN (SELECT value FROM json_each(:types)))
                 AND (:tracking_ids IS NULL OR tracking_id IN (SELECT value FROM json_each(:tracking_ids)))
                 AND (:older_than IS NULL
                      OR coalesce(processed_at, created_at) < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :older_than))
               ORDER BY id LIMIT :limit)
RETURNING tracking_id;
