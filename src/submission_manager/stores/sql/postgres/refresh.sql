-- name: refresh
-- Spec 000's cursor (fresh), and what it would miss (late): rows at or before the cursor whose writer had not committed
-- when the earlier snapshot was taken. The last row is the clock's, with the snapshot that this page was read in.
WITH late AS MATERIALIZED (
    SELECT intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at,
           CASE WHEN policy = 'deadline' THEN max_acceptance_seconds END AS deadline_s
      FROM submission_intents
     WHERE modified_xid >= pg_snapshot_xmin(CAST(:seen AS pg_snapshot))
       AND NOT pg_visible_in_snapshot(modified_xid, CAST(:seen AS pg_snapshot))),
fresh AS MATERIALIZED (
    SELECT intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at,
           CASE WHEN policy = 'deadline' THEN max_acceptance_seconds END AS deadline_s
      FROM submission_intents
     WHERE (last_modified_at, intent_id) > (CAST(:from_at AS timestamptz), CAST(:from_id AS text))
     ORDER BY last_modified_at, intent_id
     LIMIT :limit)
(SELECT intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at, deadline_s,
        CAST(NULL AS text) AS snapshot
   FROM (SELECT intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at, deadline_s FROM late
          WHERE (last_modified_at, intent_id) > (CAST(:after_at AS timestamptz), CAST(:after_id AS text))
            AND (last_modified_at, intent_id) <= (CAST(:floor_at AS timestamptz), CAST(:floor_id AS text))
         UNION ALL
         SELECT intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at, deadline_s
           FROM fresh) AS changed
  ORDER BY last_modified_at, intent_id
  LIMIT :limit)
UNION ALL
SELECT '', NULL, clock_timestamp(), '', '', NULL, NULL, CAST(pg_current_snapshot() AS text);
