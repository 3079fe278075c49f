-- name: connection_limits
-- only: postgres, because SQLite has no connections to a server.
-- Every limit on how many connections this user may have, and the name of the setting; the smallest first. The limits
-- of a role and of a database, and the connections reserved for superusers, do not bind a superuser.
SELECT most, setting
  FROM (
        SELECT current_setting('max_connections')::int
               - CASE WHEN r.rolsuper THEN 0 ELSE current_setting('superuser_reserved_connections')::int END AS most,
               'max_connections' AS setting
          FROM pg_catalog.pg_roles AS r WHERE r.rolname = session_user
         UNION ALL
        SELECT r.rolconnlimit, 'CONNECTION LIMIT of the role ' || r.rolname
          FROM pg_catalog.pg_roles AS r WHERE r.rolname = session_user AND r.rolconnlimit >= 0 AND NOT r.rolsuper
         UNION ALL
        SELECT d.datconnlimit, 'CONNECTION LIMIT of the database ' || d.datname
          FROM pg_catalog.pg_database AS d, pg_catalog.pg_roles AS r
         WHERE d.datname = current_database() AND d.datconnlimit >= 0
           AND r.rolname = session_user AND NOT r.rolsuper
       ) AS limits
 ORDER BY most;
