-- name: find_items_in_state
SELECT * FROM c WHERE c.pk = @partition AND c.state = @state ORDER BY c.stateTimestamp;
