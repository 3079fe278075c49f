-- name: told
-- What came of telling the receiver. What was delivered stays delivered.
UPDATE submission_intents
   SET webhook_status = :status, webhook_attempted_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
       webhook_delivered_at = CASE WHEN :status = 'delivered' THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now') END,
       webhook_error = :error, updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
       last_modified_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
       modified_seq = (SELECT max(modified_seq) + 1 FROM submission_intents)
 WHERE intent_id = :id AND completed_at IS NOT NULL AND webhook_status <> 'delivered';
