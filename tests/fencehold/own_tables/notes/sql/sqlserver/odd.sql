-- name: odd
-- Words that are also a table's name.
SELECT 'my notes are done' AS words, @notes AS given, NULL AS made_at;
