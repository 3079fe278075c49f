-- name: put
-- rules: absent.put.always free.put.always live.put.is_own
-- The conflict locks the row, and only then is the clock read. No row in the answer: another holds it.
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', :patience, true)
)
INSERT INTO fencehold_items AS i (kind, id, state, state_timestamp, document)
SELECT :kind::text, :id::text, :state::text, clock_timestamp(), :document::json FROM patience
ON CONFLICT (kind, id) DO UPDATE
   SET state = excluded.state, state_timestamp = clock_timestamp(), document = excluded.document
 WHERE i.holder_id IS NULL OR i.expires_at <= clock_timestamp() OR i.holder_id = :holder
RETURNING i.id, i.state, i.state_timestamp, i.document::text, i.token, i.holder_id, i.leased_at, i.lease_ms,
          i.expires_at, clock_timestamp() AS now;
