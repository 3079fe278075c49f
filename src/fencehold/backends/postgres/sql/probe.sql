-- name: probe
-- A pooler answers with the pid of whichever server session it chose, not with that of the start-up packet.
SELECT pg_backend_pid();
