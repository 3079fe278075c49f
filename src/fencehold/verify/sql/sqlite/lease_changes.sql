-- name: lease_changes
SELECT name, was_holder, was_epoch, was_live, holder, epoch FROM verify_lease_changes ORDER BY seq
