-- name: note
INSERT INTO {schema}.verify_writes (lease_name, commit_order, holder_id, epoch, epoch_seen, write_id)
SELECT CAST(:counter AS text), n, CAST(:holder AS text), CAST(:epoch AS bigint), (SELECT lease_epoch FROM {schema}.fencehold_leases WHERE lease_name = CAST(:counter AS text)), CAST(:write_id AS text)
  FROM {schema}.verify_counters WHERE name = CAST(:counter AS text)
