-- name: make_counter
INSERT INTO verify_counters (name, n) VALUES (CAST(:counter AS text), 0)
