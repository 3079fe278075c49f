-- name: safeguards_missing
-- What keeps a stale writer out besides the statements, and is not there: what refuses a falling epoch and a deleted row.
-- Known by what they do, not by their names. A row that an older version inserted needs its id.
SELECT 'trigger ' || replace(w.name, '"', '') AS part
  FROM (SELECT 'fencehold_leases_epoch_rises' AS name, '%BEFORE UPDATE OF lease_epoch ON%' AS does
         UNION ALL SELECT 'fencehold_leases_row_stays', '%BEFORE DELETE ON%'
         UNION ALL SELECT 'fencehold_leases_has_id', '%AFTER INSERT ON%lease_id%') AS w
 WHERE NOT EXISTS (SELECT 1 FROM sqlite_master AS m
                    WHERE m.type = 'trigger' AND m.tbl_name = 'fencehold_leases' COLLATE NOCASE AND m.sql LIKE w.does)
 ORDER BY part;
