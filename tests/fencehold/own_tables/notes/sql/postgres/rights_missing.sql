-- name: rights_missing
SELECT 'INSERT on notes' AS missing WHERE NOT has_table_privilege('notes', 'INSERT');
