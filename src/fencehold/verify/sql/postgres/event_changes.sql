-- name: event_changes
SELECT tracking_id, was_status, was_token, was_live, status, token, is_counted FROM {schema}.verify_event_changes ORDER BY seq
