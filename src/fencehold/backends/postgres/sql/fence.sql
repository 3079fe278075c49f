-- name: fence
-- rules: live.fence.is_holder
-- KEY SHARE keeps the row from a takeover, which changes the epoch, until the caller's transaction ends; renewals pass.
-- The limits bound what a frozen holder can cost: no statement and no pause outlasts half its lease. The mark lasts as
-- long as the lock does, and shows later whether this is still the same transaction. One row in any case: the epoch only
-- if the fence holds; `is_ours` is not true in another database, which has no such lease or another of the same name.
-- In a transaction of the library's `own` a limit of the role on whole transactions is lifted (PostgreSQL 17 and newer).
-- Where the store asks for it (`sync_commit` is not empty) the commit waits for a standby; the last column says for which.
WITH held AS MATERIALIZED (
    SELECT set_config('lock_timeout', CAST(:limit_ms AS text), true), set_config('statement_timeout', CAST(:limit_ms AS text), true),
           set_config('idle_in_transaction_session_timeout', CAST(:limit_ms AS text), true),
           set_config('fencehold.fence', CAST(:mark AS text), true),
           CASE WHEN CAST(:own AS boolean) AND current_setting('transaction_timeout', true) IS NOT NULL
                THEN set_config('transaction_timeout', '0', true) END,
           CASE WHEN CAST(:sync_commit AS text) = 'remote_apply' OR (CAST(:sync_commit AS text) = 'on'
                     AND current_setting('synchronous_commit') IN ('off', 'local', 'remote_write'))
                THEN set_config('synchronous_commit', CAST(:sync_commit AS text), true) END,
           lease_epoch
      FROM fencehold_leases
     WHERE lease_name = :name AND holder_id = :holder AND lease_epoch = :epoch AND lease_id = :lease_id
       AND expires_at > clock_timestamp()
       FOR KEY SHARE
)
SELECT held.lease_epoch, seen.lease_id = :lease_id AS is_ours, current_setting('synchronous_standby_names') AS standbys
  FROM (SELECT 1) AS one
  LEFT JOIN held ON true
  LEFT JOIN fencehold_leases AS seen ON seen.lease_name = :name;
