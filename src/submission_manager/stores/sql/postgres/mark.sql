-- name: mark
-- From here on the gateway may have been called: whoever finds the marker of another epoch counts an attempt.
UPDATE submission_intents
   SET attempt_started_at = :now, attempt_epoch = :epoch, attempt_holder = :holder, updated_at = :now,
       last_modified_at = :now, modified_xid = pg_current_xact_id()
 WHERE intent_id = :id AND status = 'pending';
