-- name: first_time
-- A second transaction with the same event waits here for the first to end, and then knows.
INSERT INTO fencehold_outbox_consumed (tracking_id, consumer_id)
VALUES (CAST(:tracking_id AS uuid), CAST(:consumer AS text))
ON CONFLICT DO NOTHING
RETURNING 1;
