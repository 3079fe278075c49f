-- name: guard
-- rules: live.fence.is_holder
-- A condition for the WHERE of one statement. The lock makes it a fence; a bare EXISTS would leak. Names come in hexadecimal:
-- the caller's connection may be in an encoding that lacks their characters, or in one that nobody converts.
EXISTS (SELECT FROM fencehold_leases
         WHERE lease_name = convert_from(decode(:fencehold_name, 'hex'), 'UTF8')
           AND holder_id = convert_from(decode(:fencehold_holder, 'hex'), 'UTF8')
           AND lease_epoch = :fencehold_epoch AND lease_id = :fencehold_lease_id AND expires_at > clock_timestamp()
           AND set_config('lock_timeout', CAST(:fencehold_limit_ms AS text), true) IS NOT NULL
           FOR KEY SHARE)
