-- name: horizon
-- Where a rebuild begins: whatever is numbered above this is left to the refreshes after it.
SELECT modified_seq, last_modified_at, intent_id FROM submission_intents ORDER BY modified_seq DESC LIMIT 1;
