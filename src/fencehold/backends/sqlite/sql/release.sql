-- name: release
-- rules: live.release.is_holder
-- Expires the row and keeps it: the next epoch counts on from this one. Two equal times say that it was given back.
UPDATE fencehold_leases
   SET renewed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
 WHERE lease_name = :name AND holder_id = :holder AND lease_epoch = :epoch
   AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING lease_name;
