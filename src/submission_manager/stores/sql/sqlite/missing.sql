-- name: missing
SELECT name
FROM (
    SELECT 'submission_intents' AS name
    UNION ALL SELECT 'submission_attempts'
    UNION ALL SELECT 'submission_owner'
    UNION ALL SELECT 'submission_manager_leases'
)
WHERE name NOT IN (SELECT name FROM sqlite_master WHERE type = 'table');
