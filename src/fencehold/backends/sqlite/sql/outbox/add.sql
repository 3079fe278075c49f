-- name: add
-- A tracking id that is known already is left alone.
INSERT INTO fencehold_outbox
       (tracking_id, event_type, payload, max_retries, aggregate_id, aggregate_type, metadata, due_at, priority)
VALUES (:tracking_id, :event_type, :payload, :max_retries, :aggregate_id, :aggregate_type, :metadata,
        coalesce(:not_before, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :delay)), :priority)
ON CONFLICT (tracking_id) DO NOTHING
RETURNING tracking_id;
