-- name: read
DECLARE @ids nvarchar(max) = :ids;
SELECT n.note_id, n.weight, n.written_at, SYSUTCDATETIME() AS now
  FROM notes AS n
 WHERE n.note_id IN (SELECT REPLACE(REPLACE(REPLACE(g.id, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
                       FROM OPENJSON(@ids) WITH (id nvarchar(300) '$.id') AS g)
 ORDER BY n.note_id;
