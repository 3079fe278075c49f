-- name: guard
-- rules: live.fence.is_holder
-- A condition for the WHERE of one statement. The lock makes it a fence; a bare EXISTS would leak.
EXISTS (SELECT FROM fencehold_leases
         WHERE lease_name = :fencehold_name AND holder_id = :fencehold_holder AND lease_epoch = :fencehold_epoch
           AND lease_id = :fencehold_lease_id AND expires_at > clock_timestamp()
           AND set_config('lock_timeout', CAST(:fencehold_limit_ms AS text), true) IS NOT NULL
           FOR KEY SHARE)
