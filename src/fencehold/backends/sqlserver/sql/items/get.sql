-- name: get
-- Each by its key, whatever the statistics say. In a list, names are written as item_rows.py says.
DECLARE @kind nvarchar(256) = :kind, @ids nvarchar(max) = :ids;
SELECT i.id, i.state, i.state_timestamp, i.document, i.token, i.holder_id, i.leased_at, i.lease_ms, i.expires_at,
       SYSUTCDATETIME() AS now
  FROM OPENJSON(@ids) WITH (id nvarchar(2000) '$.id') AS a
  JOIN fencehold_items AS i WITH (INDEX (fencehold_items_one))
    ON i.kind = @kind
   AND i.id = REPLACE(REPLACE(REPLACE(a.id COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
OPTION (LOOP JOIN, FORCE ORDER);
