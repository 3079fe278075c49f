-- name: probe
-- Possession, not only liveness: a session that answers may have lost the lock, or be another than the one that locked.
SET NOCOUNT ON;
DECLARE @resource nvarchar(255) = :resource, @token nvarchar(64) = :token, @session int = :session;
SELECT CASE WHEN @@SPID = @session AND CAST(SESSION_CONTEXT(N'mssqlleaderlock') AS nvarchar(64)) = @token
            THEN 1 ELSE 0 END AS mine,
       CASE WHEN APPLOCK_MODE(N'public', @resource, N'Session') = N'Exclusive' THEN 1 ELSE 0 END AS held;
