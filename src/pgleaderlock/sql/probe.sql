-- name: probe
-- Possession, not only liveness: a session that answers may have lost the lock, or be another's.
SELECT coalesce(current_setting('pgleaderlock.session', true), '') = :token,
       EXISTS (SELECT FROM pg_locks
                WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted AND objsubid = 2
                  AND classid = CAST(CAST(:key1 AS int4) AS oid) AND objid = CAST(CAST(:key2 AS int4) AS oid)
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()));
