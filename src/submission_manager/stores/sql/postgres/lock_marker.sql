-- name: lock_marker
-- only: postgres and sqlite, because elsewhere an attempt's write is one batch.
-- The row first, then the clock: time may pass while another has the row.
WITH locked AS MATERIALIZED (
    SELECT status, attempt_count, attempt_started_at, attempt_epoch, attempt_holder
      FROM submission_intents WHERE intent_id = :id FOR NO KEY UPDATE)
SELECT locked.*, clock_timestamp() FROM locked;
