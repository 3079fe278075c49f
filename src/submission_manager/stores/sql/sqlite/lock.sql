-- name: lock
-- only: postgres and sqlite, because elsewhere an attempt's write is one batch.
-- Inside a fenced transaction, which has the whole file to itself.
SELECT payload, gateway_type, gateway_url, policy, max_acceptance_seconds, max_attempts,
       CAST(terminal_outcomes AS text) AS terminal_outcomes, webhook_url, CAST(webhook_headers AS text) AS webhook_headers,
       CAST(webhook_headers_env AS text) AS webhook_headers_env, webhook_secret_env,
       submission_target, created_at, status, attempt_count, next_attempt_at, attempt_started_at, attempt_epoch, attempt_holder,
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now
  FROM submission_intents WHERE intent_id = :id;
