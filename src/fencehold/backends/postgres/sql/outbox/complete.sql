-- name: complete
-- rules: PROCESSING.complete.is_holder
-- coalesce keeps the planner from seeking each key among all PROCESSING rows instead of by its id.
UPDATE fencehold_outbox AS o
   SET status = 'COMPLETED', locked_until = NULL, processed_at = clock_timestamp()
  FROM unnest(:ids::uuid[], :tokens::text[]) AS a(id, token)
 WHERE o.tracking_id = a.id AND o.lock_token = a.token
   AND coalesce(o.status, '') = 'PROCESSING' AND o.locked_until > clock_timestamp()
RETURNING o.id, o.lock_token;
