-- name: foreign
-- Whether there is something of that name that we did not make.
SELECT to_regclass(:table) IS NOT NULL;
