-- name: pid
-- Which server session answers.
SELECT pg_backend_pid();
