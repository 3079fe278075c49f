-- name: read
SELECT note_id, weight, written_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now
  FROM notes WHERE note_id IN (SELECT value FROM json_each(:ids)) ORDER BY note_id;
