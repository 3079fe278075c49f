-- name: put
-- rules: absent.put.always free.put.always live.put.is_own
-- Runs after BEGIN IMMEDIATE, as all that write here: the one writer reads the clock when nobody else can write.
INSERT INTO fencehold_items (kind, id, state, state_timestamp, document)
VALUES (:kind, :id, :state, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), :document)
ON CONFLICT (kind, id) DO UPDATE
   SET state = excluded.state, state_timestamp = excluded.state_timestamp, document = excluded.document
 WHERE holder_id IS NULL OR expires_at <= excluded.state_timestamp OR holder_id = :holder
RETURNING id;
