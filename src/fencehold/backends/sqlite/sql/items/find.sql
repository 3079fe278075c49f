-- name: find
-- One of the two is never run: with a state, what is in other states is not read.
SELECT * FROM (
    SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at,
           strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now
      FROM fencehold_items WHERE :state IS NOT NULL AND kind = :kind AND state = :state
     ORDER BY state_timestamp, id LIMIT :limit)
UNION ALL
SELECT * FROM (
    SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at,
           strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now
      FROM fencehold_items WHERE :state IS NULL AND kind = :kind
     ORDER BY state_timestamp, id LIMIT :limit);
