-- name: history
-- One statement, so that the attempts are those of the intent as it is shown.
SELECT i.intent_id, i.submission_target, i.created_at, i.status, i.attempt_count, i.completed_at, i.final_outcome_reason,
       i.exhausted_reason, a.attempt_number, a.started_at, a.finished_at, a.outcome_status, a.outcome_reason, a.error
  FROM submission_intents AS i LEFT JOIN submission_attempts AS a ON a.intent_id = i.intent_id
 WHERE i.intent_id = :id
 ORDER BY a.attempt_number;
