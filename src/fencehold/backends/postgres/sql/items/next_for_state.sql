-- name: next_for_state
-- rules: free.next.is_in_state
-- Lock first, then read the clock. What another session has locked is being taken: it is left to it.
-- NOT IN, for that is looked up in a table of hashes; `<> ALL (:skip)` would be compared one by one.
-- What is below `on` is raised for this commit: a grant that was answered must survive a crash, or its token would come twice.
WITH durable AS MATERIALIZED (
    SELECT set_config('synchronous_commit',
                      CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN 'on'
                           ELSE current_setting('synchronous_commit') END, true)
), next AS MATERIALIZED (
    SELECT id FROM fencehold_items
     WHERE kind = :kind AND state = :state AND (holder_id IS NULL OR expires_at <= statement_timestamp())
       AND state_timestamp >= :since::timestamptz AND state_timestamp < :before::timestamptz
       AND id NOT IN (SELECT unnest(:skip::text[]))
     ORDER BY state_timestamp, id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE fencehold_items AS i
   SET token = nextval('fencehold_items_token'), holder_id = :holder, leased_at = c.now, lease_ms = :lease_ms,
       expires_at = c.now + :lease_ms * interval '1 millisecond'
  FROM durable, (SELECT id, clock_timestamp() AS now FROM next) AS c
 WHERE i.kind = :kind AND i.id = c.id AND (i.holder_id IS NULL OR i.expires_at <= c.now)
RETURNING i.id, i.state, i.state_timestamp, i.document::text, i.token, i.holder_id, i.leased_at, i.lease_ms,
          i.expires_at, c.now;
