-- name: steps_there
-- Whether steps_table has nothing to create.
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE lower(name) = lower(trim('fencehold_schema', '"')));
