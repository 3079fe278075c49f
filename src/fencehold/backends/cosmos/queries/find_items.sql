-- name: find_items
-- A deleted item has no state.
SELECT * FROM c WHERE c.pk = @partition AND IS_STRING(c.state) ORDER BY c.stateTimestamp;
