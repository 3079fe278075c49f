-- name: evict
-- Ends the session that this lock left behind and that still holds it: same process id, same birth, same key, or nothing.
SELECT pg_terminate_backend(l.pid, CAST(:patience_ms AS bigint))
  FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
   AND l.classid = CAST(CAST(:key1 AS int4) AS oid) AND l.objid = CAST(CAST(:key2 AS int4) AS oid)
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND l.pid = :pid AND a.backend_start = :born_at;
