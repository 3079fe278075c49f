-- name: acquire
-- rules: free.acquire.always live.acquire.is_own
-- What another holds is not locked, so that asking for it never stands in the way of its renewal. Lock first, then read
-- the clock. Rows without a grant: the item as it was seen; whoever lost it while waiting for the lock asks again.
-- What is below `on` is raised for this commit: a grant that was answered must survive a crash, or its token would come twice.
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', :patience, true),
           set_config('synchronous_commit',
                      CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN 'on'
                           ELSE current_setting('synchronous_commit') END, true)
), locked AS MATERIALIZED (
    SELECT i.id FROM patience, fencehold_items AS i
     WHERE i.kind = :kind AND i.id = :id
       AND (i.holder_id IS NULL OR i.expires_at <= clock_timestamp() OR i.holder_id = :holder)
       FOR NO KEY UPDATE OF i
), granted AS (
    UPDATE fencehold_items AS i
       SET token = nextval('fencehold_items_token'), holder_id = :holder, leased_at = c.now, lease_ms = :lease_ms,
           expires_at = c.now + :lease_ms * interval '1 millisecond'
      FROM (SELECT id, clock_timestamp() AS now FROM locked) AS c
     WHERE i.kind = :kind AND i.id = c.id
       AND (i.holder_id IS NULL OR i.expires_at <= c.now OR i.holder_id = :holder)
    RETURNING i.*, c.now
)
SELECT g.id, g.state, g.state_timestamp, g.document::text, g.token, g.holder_id, g.leased_at, g.lease_ms, g.expires_at,
       g.now, true AS is_granted
  FROM granted AS g
UNION ALL
SELECT i.id, i.state, i.state_timestamp, i.document::text, i.token, i.holder_id, i.leased_at, i.lease_ms, i.expires_at,
       clock_timestamp(), false
  FROM fencehold_items AS i WHERE i.kind = :kind AND i.id = :id AND NOT EXISTS (SELECT FROM granted);
