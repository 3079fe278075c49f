-- name: guard
-- rules: live.fence.is_holder
-- A condition for the WHERE of one statement. The lock makes it a fence; a bare EXISTS would leak. Names come in hexadecimal:
-- the caller's connection may be in an encoding that lacks their characters, or in one that nobody converts. Where the
-- store asks for it, the statement's commit waits for a standby (`fencehold_sync_commit` is not empty).
EXISTS (SELECT FROM fencehold_leases
         WHERE lease_name = convert_from(decode(:fencehold_name, 'hex'), 'UTF8')
           AND holder_id = convert_from(decode(:fencehold_holder, 'hex'), 'UTF8')
           AND lease_epoch = :fencehold_epoch AND lease_id = :fencehold_lease_id AND expires_at > clock_timestamp()
           AND set_config('lock_timeout', CAST(:fencehold_limit_ms AS text), true) IS NOT NULL
           AND CASE WHEN CAST(:fencehold_sync_commit AS text) = 'remote_apply' OR (CAST(:fencehold_sync_commit AS text) = 'on'
                         AND current_setting('synchronous_commit') IN ('off', 'local', 'remote_write'))
                    THEN set_config('synchronous_commit', CAST(:fencehold_sync_commit AS text), true) IS NOT NULL
                    ELSE true END
           FOR KEY SHARE)
