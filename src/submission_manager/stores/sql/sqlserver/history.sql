-- name: history
-- One statement, so that with row versions the attempts are those of the intent as it is shown. Without them the two
-- are read one after the other; what is written in between may be in one and not yet in the other.
DECLARE @id nvarchar(400) = :id;
SELECT i.intent_id, i.submission_target, i.created_at, i.status, i.attempt_count, i.completed_at, i.final_outcome_reason,
       i.exhausted_reason, a.attempt_number, a.started_at, a.finished_at, a.outcome_status, a.outcome_reason, a.error
  FROM submission_intents AS i LEFT JOIN submission_attempts AS a ON a.intent_id = i.intent_id
 WHERE i.intent_id = @id
 ORDER BY a.attempt_number;
