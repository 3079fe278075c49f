-- name: told
-- What came of telling the receiver, at one instant. What was delivered stays delivered. Whoever keeps the row locked is
-- not waited for, as in `lock`.
UPDATE submission_intents
   SET webhook_status = CAST(:status AS text), webhook_attempted_at = clock.now,
       webhook_delivered_at = CASE WHEN CAST(:status AS text) = 'delivered' THEN clock.now END,
       webhook_error = :error, updated_at = clock.now, last_modified_at = clock.now, modified_xid = pg_current_xact_id()
  FROM (SELECT clock_timestamp() AS now, set_config('lock_timeout', CAST(:wait_ms AS text), true) OFFSET 0) AS clock
 WHERE intent_id = :id AND completed_at IS NOT NULL AND webhook_status <> 'delivered';
