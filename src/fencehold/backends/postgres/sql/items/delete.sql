-- name: delete
-- rules: live.delete.is_holder
-- Lock first, then read the clock; what is refused answers the row that was locked.
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', :patience, true)
), locked AS MATERIALIZED (
    SELECT i.* FROM patience, fencehold_items AS i WHERE i.kind = :kind AND i.id = :id FOR UPDATE OF i
), seen AS MATERIALIZED (
    SELECT *, clock_timestamp() AS now FROM locked
), gone AS (
    DELETE FROM fencehold_items AS i USING seen AS s
     WHERE i.kind = :kind AND i.id = s.id
       AND i.holder_id = :holder AND i.token = :token AND i.expires_at > s.now
    RETURNING i.id
)
SELECT s.id, s.state, s.state_timestamp, s.document::text, s.token, s.holder_id, s.leased_at, s.lease_ms, s.expires_at,
       s.now, EXISTS (SELECT FROM gone) AS is_gone
  FROM seen AS s;
