-- name: cluster
-- only: postgres, because only there one server of several can be asked who follows it.
-- What any role may see of a cluster: how many processes send WAL to somebody (whether these keep up, or are waited for,
-- is masked), how many slots are kept for standbys, whether the server was started as Patroni starts it, for whom commits
-- wait, and whether this connection came straight from its client (a proxy has another port of its own).
SELECT (SELECT count(*) FROM pg_stat_replication),
       (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical'),
       (SELECT count(*) = 2 FROM pg_settings
         WHERE name IN ('cluster_name', 'wal_log_hints') AND source = 'command line'),
       current_setting('synchronous_standby_names'),
       inet_client_port();
