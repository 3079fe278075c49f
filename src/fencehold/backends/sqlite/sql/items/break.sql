-- name: break
-- rules: absent.break.always free.break.always live.break.is_own_lease
-- Whatever is held afterwards was refused; token 0 means whatever lease this holder has.
-- CROSS JOIN keeps the planner from reading all items of the kind for each key instead of each item by its id.
UPDATE fencehold_items
   SET holder_id = NULL, leased_at = NULL, lease_ms = NULL, expires_at = NULL
 WHERE rowid IN (SELECT i.rowid
                   FROM json_each(:keys) AS a
                  CROSS JOIN fencehold_items AS i
                  WHERE i.kind = :kind AND i.id = json_extract(a.value, '$[0]')
                    AND i.holder_id = json_extract(a.value, '$[1]') AND json_extract(a.value, '$[2]') IN (0, i.token))
   AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING id;
