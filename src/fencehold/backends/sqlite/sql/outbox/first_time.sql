-- name: first_time
-- Takes the write lock: a second transaction with the same event waits for the first to end, and then knows.
INSERT INTO fencehold_outbox_consumed (tracking_id, consumer_id)
VALUES (:tracking_id, :consumer)
ON CONFLICT DO NOTHING
RETURNING tracking_id;
