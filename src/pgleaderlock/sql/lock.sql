-- name: lock
-- Locks only in the session we marked, and only if it does not hold the lock already (locks are re-entrant, and a pooler
-- may have given us another client's session); in the same statement gives the lock an expiry that the server enforces.
SELECT mine, CASE WHEN mine THEN
         CASE WHEN pg_try_advisory_lock(CAST(:key1 AS int4), CAST(:key2 AS int4))
              THEN set_config('idle_session_timeout', :timeout_ms, false) IS NOT NULL
              ELSE false END END
  FROM (SELECT coalesce(current_setting('pgleaderlock.session', true), '') = :token
           AND NOT EXISTS (SELECT FROM pg_locks
                            WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted AND objsubid = 2
                              AND classid = CAST(CAST(:key1 AS int4) AS oid) AND objid = CAST(CAST(:key2 AS int4) AS oid)
                              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS mine
        OFFSET 0) AS session;
