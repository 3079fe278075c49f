-- name: in_use
-- only: postgres, because elsewhere a session does not say, to everybody, who it is.
-- Who has the table in an open transaction, or makes tables just now: what a step that changes it waits for. Of other
-- roles' sessions most users see neither what they do nor since when.
SELECT a.pid, a.usename::text, a.application_name, coalesce(a.state, ''),
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS open_s
  FROM pg_stat_activity AS a
 WHERE a.pid <> pg_backend_pid()
   AND a.pid IN (SELECT l.pid FROM pg_locks AS l
                  WHERE l.granted AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
                    AND (l.relation = to_regclass(:table)
                         OR (l.locktype = 'advisory' AND l.classid = 1718511459 AND l.objid = 1)))
 ORDER BY open_s DESC NULLS LAST LIMIT 3;
