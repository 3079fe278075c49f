-- name: fence
-- rules: live.fence.is_holder
-- Changes nothing, but as an UPDATE it takes the write lock: from here until the caller's commit nobody can take over,
-- and a transaction that reads from an older snapshot fails here instead of passing. No row, or one that is not ours: this
-- is another file.
UPDATE fencehold_leases
   SET holder_id = holder_id
 WHERE lease_name = :name
RETURNING lease_id = :lease_id AND holder_id = :holder AND lease_epoch = :epoch
          AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS is_held, lease_id = :lease_id AS is_ours;
