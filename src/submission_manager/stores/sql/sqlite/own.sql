-- name: own
-- Who comes first owns the schedule.
INSERT INTO submission_owner (one, lease_name) VALUES (1, :lease_name) ON CONFLICT DO NOTHING RETURNING lease_name;
