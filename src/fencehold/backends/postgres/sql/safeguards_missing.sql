-- name: safeguards_missing
-- What keeps a stale writer out besides the statements, and is not there: the key that makes a takeover wait for an open
-- fenced transaction, and what refuses a falling epoch and a deleted row, and lifts the epoch after a promotion. Known by
-- what they do, not by their names.
SELECT 'UNIQUE (lease_name, lease_epoch) on ' || replace('fencehold_leases', '"', '') AS part
 WHERE NOT EXISTS (SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attname = 'lease_epoch'
                    WHERE i.indrelid = to_regclass('fencehold_leases') AND i.indisunique AND i.indpred IS NULL
                      AND i.indexprs IS NULL AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))
 UNION ALL
-- Of pg_trigger.tgtype 1 is a row's, 2 before, 4 an insert, 8 a delete, 16 an update; O and A fire in every session but a replica's.
SELECT 'trigger ' || replace(w.name, '"', '')
       || CASE WHEN EXISTS (SELECT FROM pg_trigger AS t
                             WHERE t.tgrelid = to_regclass('fencehold_leases') AND t.tgname = replace(w.name, '"', ''))
               THEN ' (disabled)' ELSE '' END
  FROM (VALUES ('fencehold_leases_epoch_rises', 19, 'must not fall'), ('fencehold_leases_row_stays', 11, 'must not be deleted'),
               ('fencehold_leases_epoch_lifted', 23, 'grant_timeline')) AS w(name, does, says)
 WHERE NOT EXISTS (SELECT FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
                    WHERE t.tgrelid = to_regclass('fencehold_leases') AND t.tgenabled IN ('O', 'A')
                      AND t.tgtype & w.does = w.does AND position('lease_epoch' IN p.prosrc) > 0
                      AND position(w.says IN p.prosrc) > 0)
 ORDER BY part;
