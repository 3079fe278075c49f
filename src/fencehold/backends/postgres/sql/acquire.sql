-- name: acquire
-- rules: absent.acquire.always lapsed.acquire.always live.acquire.is_same_request
-- Expiry is tested before the lock, so that polls do not queue behind open fenced transactions; SKIP LOCKED makes a
-- locked row a "not yet". The clock is read after the lock. ON CONFLICT names no key: of two first requests at once
-- the second may meet either unique index.
-- A grant that is answered must survive a crash, and be on the standby that the server waits for, whatever is set for
-- other commits: else its epoch would come twice. So what is below `on` is raised for this transaction. A request that is
-- repeated writes its row once more, as it is: its first commit may not have got to the standby, and this one waits for it.
-- A trigger (0003_grant_timeline) makes of + 1 a jump where the server was promoted, or the data moved, since the last grant.
-- `grant_timeline` is asked for so that a table without that trigger and column is refused as an old one.
WITH durable AS MATERIALIZED (
    SELECT set_config('synchronous_commit',
                      CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN 'on'
                           ELSE current_setting('synchronous_commit') END, true)
), lapsed AS MATERIALIZED (
    SELECT lease_name FROM fencehold_leases
     WHERE lease_name = :name AND expires_at <= clock_timestamp()
       FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE fencehold_leases AS l
       SET holder_id = :holder, lease_epoch = l.lease_epoch + 1, acquire_nonce = :nonce,
           acquired_at = c.now, renewed_at = c.now, expires_at = c.now + :lease * interval '1 second'
      FROM durable, (SELECT lease_name, clock_timestamp() AS now FROM lapsed) AS c
     WHERE l.lease_name = c.lease_name AND l.expires_at <= c.now
    RETURNING l.*, c.now
), made AS (
    INSERT INTO fencehold_leases
           (lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at, acquire_nonce)
    SELECT :name, :holder, 1, c.now, c.now, c.now + :lease * interval '1 second', :nonce
      FROM durable, (SELECT clock_timestamp() AS now) AS c
     WHERE NOT EXISTS (SELECT FROM fencehold_leases WHERE lease_name = :name)
    ON CONFLICT DO NOTHING
    RETURNING *, renewed_at AS now
), granted AS (
    SELECT * FROM taken UNION ALL SELECT * FROM made
), told AS (
    SELECT pg_notify('fencehold_leases', 'acquired ' || lease_name) FROM granted
), repeated AS (
    UPDATE fencehold_leases AS l
       SET acquire_nonce = l.acquire_nonce
      FROM durable
     WHERE l.lease_name = :name AND l.acquire_nonce = :nonce AND l.acquire_nonce <> '' AND l.holder_id = :holder
       AND l.expires_at > clock_timestamp() AND NOT EXISTS (SELECT FROM granted)
    RETURNING l.*, clock_timestamp() AS now
), seen AS (
    SELECT *, clock_timestamp() AS now FROM fencehold_leases
     WHERE lease_name = :name AND NOT EXISTS (SELECT FROM granted) AND NOT EXISTS (SELECT FROM repeated)
), answer AS (
    SELECT 'granted' AS verdict, granted.* FROM granted, (SELECT count(*) FROM told) AS t
    UNION ALL
    SELECT 'granted', repeated.* FROM repeated
    UNION ALL
    SELECT CASE WHEN expires_at <= now THEN 'busy' ELSE 'held' END, seen.* FROM seen
)
SELECT verdict, lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at,
       extract(epoch FROM expires_at - now)::float8 AS remaining_s,
       step_down_epoch = lease_epoch AS step_down, acquire_nonce, lease_id, grant_timeline
  FROM answer;
