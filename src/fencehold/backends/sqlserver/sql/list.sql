-- name: list
-- CHARINDEX sees the blanks that a comparison leaves out.
DECLARE @prefix nvarchar(128) = :prefix;
SELECT N'seen' AS verdict, lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at,
       SYSUTCDATETIME() AS now, CASE WHEN step_down_epoch = lease_epoch THEN 1 ELSE 0 END AS step_down, acquire_nonce, lease_id
  FROM fencehold_leases
 WHERE DATALENGTH(@prefix) = 0 OR CHARINDEX(@prefix, lease_name) = 1
 ORDER BY lease_name;
