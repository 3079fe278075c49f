-- name: pending_counts
-- How many intents of each target are pending.
SELECT submission_target, count(*) AS pending FROM submission_intents WHERE next_attempt_at IS NOT NULL GROUP BY submission_target;
