-- name: copy
-- only: postgres, because it is the one with a bulk load. For many new events, none of which can be known already.
COPY fencehold_outbox
     (tracking_id, event_type, payload, max_retries, aggregate_id, aggregate_type, metadata, priority) FROM STDIN;
