-- name: probe_place
-- only: postgres, because elsewhere a copy that takes over has no number of its own to tell it by.
-- The probe that each new connection sends, and whether what grants depend on can be read: where it cannot, this fails. A
-- standby grants nothing; once it is promoted it can be read there as well.
SELECT pg_backend_pid(),
       CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END AS timeline,
       (SELECT system_identifier FROM pg_control_system()) AS system_identifier;
