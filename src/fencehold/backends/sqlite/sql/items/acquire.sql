-- name: acquire
-- rules: free.acquire.always live.acquire.is_own
UPDATE fencehold_items
   SET token = (SELECT t.token FROM fencehold_items_token AS t) + 1, holder_id = :holder,
       leased_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), lease_ms = :lease_ms,
       expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :lease)
 WHERE kind = :kind AND id = :id
   AND (holder_id IS NULL OR expires_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now') OR holder_id = :holder)
RETURNING id;
