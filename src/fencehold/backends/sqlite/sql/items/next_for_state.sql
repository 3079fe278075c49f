-- name: next_for_state
-- rules: free.next.is_in_state
-- Runs after BEGIN IMMEDIATE: nobody else can take them meanwhile, so nothing needs to be locked or skipped.
UPDATE fencehold_items
   SET token = (SELECT t.token FROM fencehold_items_token AS t) + n.place, holder_id = :holder,
       leased_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), lease_ms = :lease_ms,
       expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :lease)
  FROM (SELECT l.id AS free_id, row_number() OVER (ORDER BY l.state_timestamp, l.id) AS place
          FROM (SELECT f.id, f.state_timestamp FROM fencehold_items AS f
                 WHERE f.kind = :kind AND f.state = :state
                   AND (f.holder_id IS NULL OR f.expires_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
                   AND f.state_timestamp >= :since AND f.state_timestamp < :before
                   AND f.id NOT IN (SELECT value FROM json_each(:skip))
                 ORDER BY f.state_timestamp, f.id LIMIT :limit) AS l) AS n
 WHERE kind = :kind AND id = n.free_id
RETURNING id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at,
          strftime('%Y-%m-%dT%H:%M:%fZ', 'now');
