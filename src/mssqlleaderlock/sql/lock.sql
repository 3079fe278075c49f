-- name: lock
-- Locks only in the session we marked, and only if it does not hold the lock already: application locks are re-entrant,
-- and a second one would outlast its release. Without waiting: 0 or more is yes, -1 is no; other numbers are faults, or a
-- no of a server that is only like this one, which `is_held` tells.
SET NOCOUNT ON;
DECLARE @resource nvarchar(255) = :resource, @token nvarchar(64) = :token, @session int = :session;
DECLARE @mine int = 0, @got int = -999, @is_held int = 0;
IF @@SPID = @session AND CAST(SESSION_CONTEXT(N'mssqlleaderlock') AS nvarchar(64)) = @token
   AND APPLOCK_MODE(N'public', @resource, N'Session') = N'NoLock'
    SET @mine = 1;
IF @mine = 1
    EXEC @got = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0;
IF @got = -1 OR (@mine = 1 AND @got < -1 AND APPLOCK_TEST(N'public', @resource, N'Exclusive', N'Session') = 0)
    SET @is_held = 1;
SELECT @mine AS mine, @got AS got, @is_held AS is_held;
