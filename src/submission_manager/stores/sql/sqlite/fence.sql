-- name: fence
-- only: sqlite, because elsewhere the term's own transaction, or the batch itself, has it.
-- After BEGIN IMMEDIATE: from here until the commit nobody else can write, so nobody can take over.
SELECT lease_epoch FROM submission_manager_leases
 WHERE lease_name = :name AND holder_id = :holder AND lease_epoch = :epoch
   AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now');
