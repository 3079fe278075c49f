-- name: fence_kept
-- The fence's mark is there only in the transaction that it was set in.
SELECT coalesce(current_setting('fencehold.fence', true), '');
