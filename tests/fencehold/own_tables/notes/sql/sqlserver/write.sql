-- name: write
SET NOCOUNT ON;
DECLARE @id nvarchar(100) = :id, @weight int = :weight, @written_at datetime2(6) = :written_at;
INSERT INTO notes (note_id, weight, written_at)
OUTPUT inserted.note_id, inserted.written_at
VALUES (@id, @weight, @written_at);
