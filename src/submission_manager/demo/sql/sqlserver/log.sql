-- name: log
SELECT id, kind, intent_id, attempt_number, epoch, holder_id, lease_epoch, lease_holder, error
  FROM submission_audit ORDER BY id;
