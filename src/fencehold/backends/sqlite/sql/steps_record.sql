-- name: steps_record
-- The record is there already when a table that was dropped by hand is made again.
INSERT OR IGNORE INTO fencehold_schema (component, step, applied_at)
VALUES (:component, :step, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));
