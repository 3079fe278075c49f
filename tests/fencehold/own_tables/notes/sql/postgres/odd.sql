-- name: odd
-- Words that are also a table's name, and a number where a time is expected.
SELECT 'my notes are done' AS words, CAST(:notes AS text) AS given, 17 AS made_at;
