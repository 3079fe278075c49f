-- name: steps_record
-- The record is there already when a table that was dropped by hand is made again.
DECLARE @component nvarchar(64) = :component, @step nvarchar(64) = :step;
INSERT INTO fencehold_schema (component, step, applied_at)
SELECT @component, @step, SYSUTCDATETIME()
 WHERE NOT EXISTS (SELECT 1 FROM fencehold_schema AS s WHERE s.component = @component AND s.step = @step);
