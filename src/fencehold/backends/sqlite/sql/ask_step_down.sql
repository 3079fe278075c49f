-- name: ask_step_down
-- rules: live.ask_step_down.is_epoch
-- The holder reads the mark with its next renewal.
UPDATE fencehold_leases
   SET step_down_epoch = lease_epoch
 WHERE lease_name = :name AND lease_epoch = :epoch AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING lease_name;
