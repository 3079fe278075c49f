-- name: ask_step_down
-- rules: live.ask_step_down.is_epoch
-- The holder reads the mark with its next renewal. Locks and reads as the renewal does.
SET NOCOUNT ON;
DECLARE @name nvarchar(128) = :name, @epoch bigint = :epoch;
DECLARE @now datetime2(7), @mine int = 0, @marked int = 0;
BEGIN TRANSACTION;
SELECT @mine = 1 FROM fencehold_leases WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE lease_name = @name;
SET @now = SYSUTCDATETIME();
UPDATE fencehold_leases SET step_down_epoch = lease_epoch
 WHERE lease_name = @name AND lease_epoch = @epoch AND expires_at > @now AND @mine = 1;
SET @marked = @@ROWCOUNT;
COMMIT TRANSACTION;
SELECT CASE WHEN @marked > 0 THEN N'yes'
            WHEN expires_at <= @now THEN N'lapsed'
            WHEN lease_epoch <> @epoch THEN N'held_by_another'
            ELSE N'busy' END AS verdict,
       lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at, @now AS now,
       CASE WHEN step_down_epoch = lease_epoch THEN 1 ELSE 0 END AS step_down, acquire_nonce, lease_id
  FROM fencehold_leases WITH (READUNCOMMITTED) WHERE lease_name = @name;
