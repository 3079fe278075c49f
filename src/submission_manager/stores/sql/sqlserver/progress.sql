-- name: progress
DECLARE @ids nvarchar(max) = :ids;
SELECT i.intent_id, i.status, i.attempt_count
  FROM submission_intents AS i
 WHERE i.intent_id IN (SELECT g.intent_id COLLATE Latin1_General_BIN2
                         FROM OPENJSON(@ids) WITH (intent_id nvarchar(400) '$.id') AS g);
