-- name: mark
-- The mark shows whether a later statement still runs in the session that this one ran in. The server looks after a silent
-- peer by itself, so that a follower whose machine is gone leaves no session behind.
SELECT pg_backend_pid(), set_config('pgleaderlock.session', :token, false),
       (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()),
       set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '2', false),
       set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '10000', false);
