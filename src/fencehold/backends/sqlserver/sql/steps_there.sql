-- name: steps_there
-- Whether steps_table has nothing to create.
SELECT CASE WHEN OBJECT_ID(N'fencehold_schema') IS NULL THEN 0 ELSE 1 END AS is_there;
