-- name: missing
SELECT name
FROM (
    VALUES ('submission_intents'), ('submission_attempts'), ('submission_owner'), ('submission_manager_leases')
) AS own (name)
WHERE to_regclass(name) IS NULL;
