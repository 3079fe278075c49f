-- name: pending_counts
-- How many intents of each target are pending.
SELECT submission_target, count(*) FROM submission_intents WHERE next_attempt_at IS NOT NULL GROUP BY submission_target;
