-- name: mark
-- The mark shows whether a later statement still runs in the session that this one ran in.
SELECT pg_backend_pid(), set_config('pgleaderlock.session', :token, false),
       (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid());
