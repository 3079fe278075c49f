-- name: save
-- rules: live.save.is_holder
-- Lock first, then read the clock; what is refused answers the row that was locked.
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', :patience, true)
), locked AS MATERIALIZED (
    SELECT i.* FROM patience, fencehold_items AS i WHERE i.kind = :kind AND i.id = :id FOR NO KEY UPDATE OF i
), seen AS MATERIALIZED (
    SELECT *, clock_timestamp() AS now FROM locked
), saved AS (
    UPDATE fencehold_items AS i
       SET state = coalesce(:state::text, i.state),
           state_timestamp = CASE WHEN :state::text IS NULL THEN i.state_timestamp ELSE s.now END,
           document = coalesce(:document::json, i.document)
      FROM seen AS s
     WHERE i.kind = :kind AND i.id = s.id
       AND i.holder_id = :holder AND i.token = :token AND i.expires_at > s.now
    RETURNING i.*, s.now
)
SELECT s.id, s.state, s.state_timestamp, s.document::text, s.token, s.holder_id, s.leased_at, s.lease_ms, s.expires_at,
       s.now, true AS is_saved
  FROM saved AS s
UNION ALL
SELECT s.id, s.state, s.state_timestamp, s.document::text, s.token, s.holder_id, s.leased_at, s.lease_ms, s.expires_at,
       s.now, false
  FROM seen AS s WHERE NOT EXISTS (SELECT FROM saved);
