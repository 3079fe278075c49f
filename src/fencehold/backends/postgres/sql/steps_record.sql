-- name: steps_record
INSERT INTO fencehold_schema (component, step, applied_at) VALUES (:component, :step, clock_timestamp());
