-- name: write
INSERT INTO notes (note_id, weight, written_at)
VALUES (:id, :weight, :written_at)
RETURNING note_id, written_at, pg_notify('notes', 'written');
