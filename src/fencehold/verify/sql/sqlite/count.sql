-- name: count
UPDATE verify_counters SET n = n + 1 WHERE name = CAST(:counter AS text)
