-- name: counters
SELECT name, n FROM {schema}.verify_counters ORDER BY name
