-- name: lock
-- Locks only in the session we marked, and in the same statement gives the lock an expiry that the server enforces.
SELECT mine, CASE WHEN mine THEN
         CASE WHEN pg_try_advisory_lock(CAST(:key1 AS int4), CAST(:key2 AS int4))
              THEN set_config('idle_session_timeout', :timeout_ms, false) IS NOT NULL
              ELSE false END END
  FROM (SELECT coalesce(current_setting('pgleaderlock.session', true), '') = :token AS mine) AS session;
