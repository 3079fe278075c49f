-- name: own
-- Who comes first owns the schedule; of two at once one violates the key, and then sees the other's name.
SET NOCOUNT ON;
DECLARE @lease_name nvarchar(128) = :lease_name;
INSERT INTO submission_owner (one, lease_name)
OUTPUT inserted.lease_name
SELECT 1, @lease_name WHERE NOT EXISTS (SELECT 1 FROM submission_owner);
