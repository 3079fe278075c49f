-- name: foreign
-- Whether there is something of these names that we did not make.
SELECT coalesce(to_regclass(:table), to_regclass(:table || '_reaper'), to_regclass(:table || '_consumed'),
                to_regclass(:table || '_identity')) IS NOT NULL;
