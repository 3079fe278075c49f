-- name: make_counter
INSERT INTO {schema}.verify_counters (name, n) VALUES (CAST(:counter AS text), 0)
