-- name: read
SELECT 'seen' AS verdict, lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at,
       extract(epoch FROM expires_at - clock_timestamp())::float8 AS remaining_s,
       step_down_epoch = lease_epoch AS step_down, acquire_nonce, lease_id
  FROM fencehold_leases
 WHERE lease_name = ANY (:names::text[]);
