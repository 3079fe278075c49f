-- name: unlock
-- Tells followers after the lock is gone; a session that goes on as a follower may idle again.
WITH gone AS MATERIALIZED (SELECT pg_advisory_unlock(CAST(:key1 AS int4), CAST(:key2 AS int4)) AS unlocked)
SELECT unlocked, set_config('idle_session_timeout', '0', false),
       pg_notify('pgleaderlock', CAST(:key1 AS int4) || ' ' || CAST(:key2 AS int4)) FROM gone;
