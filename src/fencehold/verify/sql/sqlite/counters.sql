-- name: counters
SELECT name, n FROM verify_counters ORDER BY name
