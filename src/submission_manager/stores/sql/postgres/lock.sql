-- name: lock
-- only: postgres and sqlite, because elsewhere an attempt's write is one batch.
-- The row first, then the clock: time may pass while another has the row. But not much: whoever keeps a row locked is not
-- waited for, from here to the end of the transaction. The limit is set before any row is locked, which comes last.
WITH limited AS MATERIALIZED (
    SELECT set_config('lock_timeout', CAST(:wait_ms AS text), true)),
locked AS MATERIALIZED (
    SELECT payload, gateway_type, gateway_url, policy, max_acceptance_seconds, max_attempts,
           CAST(terminal_outcomes AS text) AS terminal_outcomes, webhook_url, CAST(webhook_headers AS text) AS webhook_headers,
           CAST(webhook_headers_env AS text) AS webhook_headers_env, webhook_secret_env, submission_target, created_at,
           status, attempt_count, next_attempt_at, attempt_started_at, attempt_epoch, attempt_holder
      FROM submission_intents CROSS JOIN limited
     WHERE intent_id = :id
       FOR NO KEY UPDATE OF submission_intents)
SELECT locked.*, clock_timestamp() AS now FROM locked;
