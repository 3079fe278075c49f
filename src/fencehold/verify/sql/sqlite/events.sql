-- name: events
SELECT tracking_id, status FROM outbox ORDER BY id
