-- name: takes_writes
-- only: postgres, because only there a server that took writes can become one that follows another.
-- A standby answers reads, so a follower that only looks would not learn that its server is no primary any more.
SELECT current_setting('transaction_read_only') = 'off', pg_is_in_recovery();
