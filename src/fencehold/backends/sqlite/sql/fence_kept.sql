-- name: fence_kept
-- The lease as the transaction that holds the write lock sees it: true until the commit, for nobody else can write.
SELECT count(*) FROM fencehold_leases
 WHERE lease_name = :name AND holder_id = :holder AND lease_epoch = :epoch;
