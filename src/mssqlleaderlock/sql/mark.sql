-- name: mark
-- The mark shows whether a later batch still runs in the session that this one ran in: a pool or a reconnect that the
-- driver made by itself takes it away. The padding has a length of its own, by which the session's socket is known.
SET NOCOUNT ON;
DECLARE @token nvarchar(64) = :token, @padding int = :padding;
EXEC sp_set_session_context @key = N'mssqlleaderlock', @value = @token;
SELECT @@SPID AS session_id, REPLICATE(N'x', @padding) AS padding;
