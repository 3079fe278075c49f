-- name: steps_record
-- The record is there already when a table that was dropped by hand is made again.
INSERT INTO fencehold_schema (component, step, applied_at)
SELECT c.component, c.step, SYSUTCDATETIME() FROM (SELECT :component AS component, :step AS step) AS c
 WHERE NOT EXISTS (SELECT 1 FROM fencehold_schema AS s WHERE s.component = c.component AND s.step = c.step);
