-- name: probe
SELECT sqlite_version();
