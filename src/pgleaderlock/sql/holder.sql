-- name: holder
-- Who holds the lock, as far as this user may see.
SELECT a.pid, a.application_name, coalesce(a.client_addr::text, 'local'), a.usename, a.backend_start
  FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
   AND l.classid = CAST(CAST(:key1 AS int4) AS oid) AND l.objid = CAST(CAST(:key2 AS int4) AS oid)
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database());
