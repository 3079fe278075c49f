-- name: steps_record
-- The record is there already when a table that was dropped by hand is made again.
INSERT INTO fencehold_schema (component, step, applied_at) VALUES (:component, :step, clock_timestamp())
ON CONFLICT DO NOTHING;
