-- name: guard
-- rules: live.fence.is_holder
-- A condition for the WHERE of one statement, which runs alone under the write lock.
EXISTS (SELECT 1 FROM fencehold_leases
         WHERE lease_name = :fencehold_name AND holder_id = :fencehold_holder AND lease_epoch = :fencehold_epoch
           AND lease_id = :fencehold_lease_id AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
