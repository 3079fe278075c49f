-- name: get
SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now
  FROM fencehold_items
 WHERE kind = :kind AND id IN (SELECT value FROM json_each(:ids));
