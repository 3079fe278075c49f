-- name: probe
SELECT @@SPID AS session_id, SYSUTCDATETIME() AS now;
