-- name: lock_marker
-- only: postgres and sqlite, because elsewhere an attempt's write is one batch.
-- The row first, then the clock: time may pass while another has the row. But not much, as in `lock`.
WITH limited AS MATERIALIZED (
    SELECT set_config('lock_timeout', CAST(:wait_ms AS text), true)),
locked AS MATERIALIZED (
    SELECT status, attempt_count, attempt_started_at, attempt_epoch, attempt_holder
      FROM submission_intents CROSS JOIN limited
     WHERE intent_id = :id
       FOR NO KEY UPDATE OF submission_intents)
SELECT locked.*, clock_timestamp() AS now FROM locked;
