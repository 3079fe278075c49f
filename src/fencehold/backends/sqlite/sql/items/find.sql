-- name: find
SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now
  FROM fencehold_items
 WHERE kind = :kind AND (:state IS NULL OR state = :state)
 ORDER BY state_timestamp, id LIMIT :limit;
