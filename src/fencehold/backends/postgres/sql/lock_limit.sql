-- name: lock_limit
-- only: postgres, because SQL Server has a setting of the session for it, and SQLite lets nobody queue behind a wait.
SELECT set_config('lock_timeout', :limit_ms, true);
