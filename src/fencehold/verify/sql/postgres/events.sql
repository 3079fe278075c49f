-- name: events
SELECT tracking_id::text, status FROM {schema}.outbox ORDER BY id
