-- name: submitted
-- What stands under ids that were there already, with what tells a repeat from a conflict.
SELECT intent_id, submission_target, created_at, status, attempt_count, completed_at, final_outcome_reason, exhausted_reason,
       payload_hash
  FROM submission_intents WHERE intent_id IN (SELECT value FROM json_each(:ids));
