-- name: fence_kept
-- What the fence set is still there only if both statements ran in one transaction.
SELECT CAST(extract(epoch FROM CAST(current_setting('lock_timeout') AS interval)) * 1000 AS bigint);
