-- name: renew
-- rules: live.renew.is_holder
UPDATE fencehold_leases
   SET renewed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :lease)
 WHERE lease_name = :name AND holder_id = :holder AND lease_epoch = :epoch
   AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING lease_name;
