-- name: read
DECLARE @names nvarchar(max) = :names;
SELECT N'seen' AS verdict, l.lease_name, l.holder_id, l.lease_epoch, l.acquired_at, l.renewed_at, l.expires_at,
       SYSUTCDATETIME() AS now, CASE WHEN l.step_down_epoch = l.lease_epoch THEN 1 ELSE 0 END AS step_down, l.acquire_nonce,
       l.lease_id
  FROM fencehold_leases AS l
 WHERE l.lease_name IN (SELECT REPLACE(REPLACE(REPLACE(n.lease_name COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
                          FROM OPENJSON(@names) WITH (lease_name nvarchar(384) '$.name') AS n);
