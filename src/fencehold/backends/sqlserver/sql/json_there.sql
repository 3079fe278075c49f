-- name: json_there
-- only: sqlserver, because only here may a database be younger than its server: without OPENJSON nothing can be renewed.
SELECT COUNT(*) AS entries FROM OPENJSON(N'[]');
