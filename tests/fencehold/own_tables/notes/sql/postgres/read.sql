-- name: read
SELECT note_id, weight, written_at, clock_timestamp() AS now
  FROM notes WHERE note_id = ANY (CAST(:ids AS text[])) ORDER BY note_id;
