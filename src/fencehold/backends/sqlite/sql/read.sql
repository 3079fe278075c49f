-- name: read
SELECT lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now, step_down_epoch = lease_epoch AS step_down, acquire_nonce,
       lease_id
  FROM fencehold_leases
 WHERE lease_name = :name
 ORDER BY lease_name;
