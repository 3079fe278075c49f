-- name: lapsed
-- only: sqlite, because RETURNING shows what a row has become: how long it was stuck must be read before.
SELECT id, lock_token, locked_until, strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now
  FROM fencehold_outbox
 WHERE status = 'PROCESSING' AND locked_until <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
 ORDER BY locked_until, id LIMIT :limit;
