-- name: get
DECLARE @kind nvarchar(256) = :kind, @ids nvarchar(max) = :ids;
SELECT i.id, i.state, i.state_timestamp, i.document, i.token, i.holder_id, i.leased_at, i.lease_ms, i.expires_at,
       SYSUTCDATETIME() AS now
  FROM OPENJSON(@ids) WITH (id nvarchar(512) '$.id') AS a
 INNER LOOP JOIN fencehold_items AS i ON i.kind = @kind AND i.id = a.id COLLATE Latin1_General_BIN2;
