-- name: release
-- rules: PROCESSING.release.is_holder
-- coalesce keeps the planner from seeking each key among all PROCESSING rows instead of by its id.
WITH given_back AS (
    UPDATE fencehold_outbox AS o
       SET status = 'PENDING', due_at = clock_timestamp(), locked_until = NULL, lock_token = NULL
      FROM unnest(:ids::uuid[], :tokens::text[]) AS a(id, token)
     WHERE o.tracking_id = a.id AND o.lock_token = a.token
       AND coalesce(o.status, '') = 'PROCESSING' AND o.locked_until > clock_timestamp()
    RETURNING o.id, a.token, o.priority
), told AS (
    SELECT pg_notify('fencehold_outbox', 'added ' || string_agg(DISTINCT priority::text, ',')) FROM given_back
    HAVING count(*) > 0
)
SELECT id, token FROM given_back, (SELECT count(*) FROM told) AS t;
