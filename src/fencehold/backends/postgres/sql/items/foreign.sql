-- name: foreign
-- Whether there is something of these names that we did not make.
SELECT coalesce(to_regclass(:table), to_regclass(:table || '_token')) IS NOT NULL;
