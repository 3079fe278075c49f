-- name: submit
-- One intent; if its id is there already it is left alone and not answered. 'now' is one instant in a statement.
INSERT INTO submission_intents
       (intent_id, submission_target, payload, payload_hash, gateway_type, gateway_url, policy, max_acceptance_seconds,
        max_attempts, terminal_outcomes, webhook_url, webhook_headers, webhook_headers_env, webhook_secret_env, webhook_status,
        status, attempt_count, created_at, updated_at, last_modified_at, next_attempt_at, modified_seq)
SELECT :id, :target, :payload, :hash, :gateway_type, :gateway_url, :policy, :max_acceptance_seconds,
       :max_attempts, :terminal_outcomes, :webhook_url, :webhook_headers, :webhook_headers_env, :webhook_secret_env,
       :webhook_status, 'pending', 0, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
       (SELECT coalesce(max(modified_seq), 0) + 1 FROM submission_intents)
 WHERE true
ON CONFLICT (intent_id) DO NOTHING
RETURNING intent_id, created_at;
