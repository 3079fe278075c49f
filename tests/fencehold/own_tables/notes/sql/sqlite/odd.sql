-- name: odd
-- Words that are also a table's name, and times as others write them.
SELECT 'my notes are done' AS words, :notes AS given, CURRENT_TIMESTAMP AS made_at;
