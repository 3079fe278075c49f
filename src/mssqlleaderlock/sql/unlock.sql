-- name: unlock
-- To release what is not held is an error of the server's; we only want to know.
SET NOCOUNT ON;
DECLARE @resource nvarchar(255) = :resource;
DECLARE @gave int = -1;
IF APPLOCK_MODE(N'public', @resource, N'Session') <> N'NoLock'
    EXEC @gave = sp_releaseapplock @Resource = @resource, @LockOwner = N'Session';
SELECT @gave AS gave;
