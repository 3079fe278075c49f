-- name: acquire
-- rules: absent.acquire.always lapsed.acquire.always live.acquire.is_same_request (the repeat reads its own grant back)
-- Runs after BEGIN IMMEDIATE: the one writer reads the clock when nobody else can write.
INSERT INTO fencehold_leases
       (lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at, acquire_nonce, lease_id)
VALUES (:name, :holder, 1, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
        strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :lease), :nonce, lower(hex(randomblob(16))))
ON CONFLICT (lease_name) DO UPDATE
   SET holder_id = excluded.holder_id, lease_epoch = lease_epoch + 1, acquired_at = excluded.acquired_at,
       renewed_at = excluded.renewed_at, expires_at = excluded.expires_at, acquire_nonce = excluded.acquire_nonce
 WHERE expires_at <= excluded.acquired_at
RETURNING lease_name;
