-- name: owner
-- The lease that the schedule belongs to, if one is recorded, and the leases that there have been.
SELECT lease_name, 1 AS is_owner FROM submission_owner
UNION ALL
SELECT lease_name, 0 AS is_owner FROM submission_manager_leases;
