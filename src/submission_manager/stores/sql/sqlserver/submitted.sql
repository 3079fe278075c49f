-- name: submitted
-- What stands under ids that were there already, with what tells a repeat from a conflict.
DECLARE @ids nvarchar(max) = :ids;
SELECT i.intent_id, i.submission_target, i.created_at, i.status, i.attempt_count, i.completed_at, i.final_outcome_reason,
       i.exhausted_reason, i.payload_hash
  FROM submission_intents AS i
 WHERE i.intent_id IN (SELECT REPLACE(REPLACE(REPLACE(g.intent_id COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
                         FROM OPENJSON(@ids) WITH (intent_id nvarchar(1200) '$.id') AS g);
