-- name: writes
SELECT lease_name, commit_order, holder_id, epoch, epoch_seen, write_id FROM {schema}.verify_writes ORDER BY commit_order
