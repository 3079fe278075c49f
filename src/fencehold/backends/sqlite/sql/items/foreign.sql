-- name: foreign
-- Whether there is something of these names that we did not make; SQLite compares names without their case.
SELECT count(*) FROM sqlite_master WHERE lower(name) IN (:table, :table || '_token');
