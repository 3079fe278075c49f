-- name: renew
-- rules: live.renew.is_holder
-- CROSS JOIN keeps the planner from reading all items of the kind for each key instead of each item by its id.
UPDATE fencehold_items
   SET lease_ms = :lease_ms, expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :lease)
 WHERE rowid IN (SELECT i.rowid
                   FROM json_each(:keys) AS a
                  CROSS JOIN fencehold_items AS i
                  WHERE i.kind = :kind AND i.id = json_extract(a.value, '$[0]')
                    AND i.holder_id = json_extract(a.value, '$[1]') AND i.token = json_extract(a.value, '$[2]'))
   AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
RETURNING id, holder_id, token, expires_at;
