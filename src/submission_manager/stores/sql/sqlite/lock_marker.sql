-- name: lock_marker
-- only: postgres and sqlite, because elsewhere an attempt's write is one batch.
-- Inside a fenced transaction, which has the whole file to itself.
SELECT status, attempt_count, attempt_started_at, attempt_epoch, attempt_holder,
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now
  FROM submission_intents WHERE intent_id = :id;
