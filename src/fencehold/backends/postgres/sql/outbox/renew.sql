-- name: renew
-- rules: PROCESSING.renew.is_holder
-- coalesce keeps the planner from seeking each key among all PROCESSING rows instead of by its id.
-- Lock first, then read the clock. SKIP LOCKED: one stuck row must not hold up the renewal of all the others.
WITH mine AS MATERIALIZED (
    SELECT o.tracking_id FROM unnest(:ids::uuid[], :tokens::text[]) AS a(id, token)
      JOIN fencehold_outbox AS o ON o.tracking_id = a.id
     WHERE o.lock_token = a.token
       AND coalesce(o.status, '') = 'PROCESSING' AND o.locked_until > clock_timestamp()
       FOR NO KEY UPDATE OF o SKIP LOCKED
)
UPDATE fencehold_outbox AS o
   SET locked_until = clock_timestamp() + :lease * interval '1 second'
  FROM mine AS m
 WHERE o.tracking_id = m.tracking_id AND o.locked_until > clock_timestamp()
RETURNING o.id, o.lock_token, o.locked_until;
