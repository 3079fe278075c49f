-- name: submit
-- Many intents of one contract in one statement; those whose id is there already are left alone and not answered.
-- The clock is read once and for all of a row's times. One notification, and only if something is new.
WITH stored AS (
    INSERT INTO submission_intents
       (intent_id, submission_target, payload, payload_hash, gateway_type, gateway_url, policy, max_acceptance_seconds,
        max_attempts, terminal_outcomes, webhook_url, webhook_headers, webhook_headers_env, webhook_secret_env, webhook_status,
        status, attempt_count, created_at, updated_at, last_modified_at, next_attempt_at)
    SELECT given.intent_id, CAST(:target AS text), given.payload, given.payload_hash, CAST(:gateway_type AS text),
           CAST(:gateway_url AS text), CAST(:policy AS text), CAST(:max_acceptance_seconds AS integer),
           CAST(:max_attempts AS integer), CAST(:terminal_outcomes AS json), CAST(:webhook_url AS text),
           CAST(:webhook_headers AS json), CAST(:webhook_headers_env AS json), CAST(:webhook_secret_env AS text),
           CAST(:webhook_status AS text), 'pending', 0, clock.now, clock.now, clock.now, clock.now
      FROM unnest(CAST(:ids AS text[]), CAST(:payloads AS bytea[]), CAST(:hashes AS bytea[]))
               AS given (intent_id, payload, payload_hash)
           CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) AS clock
    ON CONFLICT (intent_id) DO NOTHING
    RETURNING intent_id, created_at)
SELECT intent_id, created_at, (SELECT pg_notify('submission_intents', 'submitted')) FROM stored;
