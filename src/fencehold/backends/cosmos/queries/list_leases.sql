-- name: list_leases
SELECT * FROM c WHERE c.pk = @partition AND IS_DEFINED(c.name) AND STARTSWITH(c.name, @prefix);
