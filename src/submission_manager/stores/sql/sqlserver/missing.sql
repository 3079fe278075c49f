-- name: missing
SELECT own.name
FROM (
    VALUES (N'submission_intents'), (N'submission_attempts'), (N'submission_owner'), (N'submission_manager_leases')
) AS own (name)
WHERE OBJECT_ID(own.name) IS NULL;
