-- name: session_limits
-- only: postgres, because only there a role or a database brings limits of its own into every session.
-- Limits that an administrator set for the programs of a role may be too short for ours: a lease statement that waits for
-- a busy disk would be cancelled, and a session that waits for notifications would be ended. Every call has its own limit,
-- kept by the client; a client that is frozen inside a transaction is ended by the server. A setting that this version of
-- the server does not have is left alone.
SELECT set_config(s.name, w.value, false)
  FROM (VALUES ('statement_timeout', '0'), ('lock_timeout', '0'), ('idle_in_transaction_session_timeout', '10s'),
               ('idle_session_timeout', '0'), ('transaction_timeout', '0')) AS w(name, value)
  JOIN pg_settings AS s ON s.name = w.name;
