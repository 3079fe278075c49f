-- name: settle
-- rules: accepted.is_past_deadline accepted.always rejected.is_listed any.is_one_shot any.is_last any.retry_is_past_deadline any.always
-- What was judged, in the transaction that read all that decides; no marker is left. An end is for ever. Answers the
-- next attempt's time as the column has it: the schedule compares the two.
UPDATE submission_intents
   SET status = :status, attempt_count = :attempt_count, next_attempt_at = :next_attempt_at, completed_at = :completed_at,
       final_outcome_status = :outcome_status, final_outcome_reason = :outcome_reason, exhausted_reason = :exhausted_reason,
       attempt_started_at = NULL, attempt_epoch = NULL, attempt_holder = NULL, updated_at = :now,
       last_modified_at = :now, modified_xid = pg_current_xact_id()
 WHERE intent_id = :id AND status = 'pending'
RETURNING next_attempt_at;
