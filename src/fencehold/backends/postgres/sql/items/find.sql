-- name: find
-- One of the two is never run: with a state, what is in other states is not read.
(SELECT id, state, state_timestamp, document::text, token, holder_id, leased_at, lease_ms, expires_at,
        clock_timestamp() AS now
   FROM fencehold_items WHERE :state::text IS NOT NULL AND kind = :kind AND state = :state::text
  ORDER BY state_timestamp, id LIMIT :limit)
UNION ALL
(SELECT id, state, state_timestamp, document::text, token, holder_id, leased_at, lease_ms, expires_at,
        clock_timestamp() AS now
   FROM fencehold_items WHERE :state::text IS NULL AND kind = :kind
  ORDER BY state_timestamp, id LIMIT :limit);
