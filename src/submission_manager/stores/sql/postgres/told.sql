-- name: told
-- What came of telling the receiver. What was delivered stays delivered.
UPDATE submission_intents
   SET webhook_status = CAST(:status AS text), webhook_attempted_at = clock_timestamp(),
       webhook_delivered_at = CASE WHEN CAST(:status AS text) = 'delivered' THEN clock_timestamp() END,
       webhook_error = :error, updated_at = clock_timestamp(), last_modified_at = clock_timestamp(),
       modified_xid = pg_current_xact_id()
 WHERE intent_id = :id AND completed_at IS NOT NULL AND webhook_status <> 'delivered';
