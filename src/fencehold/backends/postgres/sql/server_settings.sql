-- name: server_settings
-- only: postgres, because only there an administrator sets these for a role, a database or the whole server.
-- What may harm leases: as this role's sessions have it, durations in milliseconds.
SELECT name, setting FROM pg_settings
 WHERE name IN ('server_encoding', 'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',
                'idle_session_timeout', 'transaction_timeout');
