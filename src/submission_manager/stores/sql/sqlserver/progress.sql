-- name: progress
DECLARE @ids nvarchar(max) = :ids;
SELECT i.intent_id, i.status, i.attempt_count
  FROM submission_intents AS i
 WHERE i.intent_id IN (SELECT REPLACE(REPLACE(REPLACE(g.intent_id COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
                         FROM OPENJSON(@ids) WITH (intent_id nvarchar(1200) '$.id') AS g);
