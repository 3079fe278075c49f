-- name: seize
-- Only the lock's holder runs this: the epoch rises whatever the row's expiry, but waits for an open fenced transaction.
-- What is below `on` is raised for this commit: one that was answered must survive a crash, or its epoch would come twice.
-- A trigger (0003_grant_timeline) makes of + 1 a jump where the server was promoted, or the data moved, since the last grant.
-- `grant_timeline` is asked for so that a table without that trigger and column is refused as an old one.
WITH durable AS MATERIALIZED (
    SELECT set_config('synchronous_commit',
                      CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN 'on'
                           ELSE current_setting('synchronous_commit') END, true)
)
INSERT INTO fencehold_leases AS l (lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at, acquire_nonce)
SELECT :name, :holder, 1, now, now, now + :lease * interval '1 second', :nonce
  FROM durable, (SELECT clock_timestamp() AS now) AS c
ON CONFLICT (lease_name) DO UPDATE
   SET holder_id = excluded.holder_id, lease_epoch = l.lease_epoch + 1, acquire_nonce = excluded.acquire_nonce,
       acquired_at = clock_timestamp(), renewed_at = clock_timestamp(),
       expires_at = clock_timestamp() + :lease * interval '1 second'
RETURNING lease_epoch, lease_id, grant_timeline;
