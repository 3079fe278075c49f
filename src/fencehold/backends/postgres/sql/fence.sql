-- name: fence
-- rules: live.fence.is_holder
-- KEY SHARE keeps the row from a takeover, which changes the epoch, until the caller's transaction ends; renewals pass.
-- The limits bound what a frozen holder can cost: no statement and no pause outlasts half its lease. The mark lasts as
-- long as the lock does, and shows later whether this is still the same transaction.
SELECT set_config('lock_timeout', CAST(:limit_ms AS text), true), set_config('statement_timeout', CAST(:limit_ms AS text), true),
       set_config('idle_in_transaction_session_timeout', CAST(:limit_ms AS text), true),
       set_config('fencehold.fence', CAST(:mark AS text), true), lease_epoch
  FROM fencehold_leases
 WHERE lease_name = :name AND holder_id = :holder AND lease_epoch = :epoch AND expires_at > clock_timestamp()
   FOR KEY SHARE;
