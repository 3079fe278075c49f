-- name: renew
-- rules: live.renew.is_holder
-- Lock first, then read the clock: a renewal that had to wait must not revive a lease that lapsed meanwhile.
-- SKIP LOCKED: one stuck row must not hold up the renewal of all the others.
WITH mine AS MATERIALIZED (
    SELECT i.id FROM unnest(:ids::text[], :holders::text[], :tokens::bigint[]) AS a(id, holder_id, token)
      JOIN fencehold_items AS i ON i.kind = :kind AND i.id = a.id
     WHERE i.holder_id = a.holder_id AND i.token = a.token AND i.expires_at > clock_timestamp()
       FOR NO KEY UPDATE OF i SKIP LOCKED
)
UPDATE fencehold_items AS i
   SET lease_ms = :lease_ms, expires_at = c.now + :lease_ms * interval '1 millisecond'
  FROM (SELECT id, clock_timestamp() AS now FROM mine) AS c
 WHERE i.kind = :kind AND i.id = c.id AND i.expires_at > c.now
RETURNING i.id, i.holder_id, i.token, i.expires_at;
