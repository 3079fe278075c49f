-- name: release
-- rules: live.release.is_holder
-- Expires the row and keeps it: the next epoch counts on from this one. Two equal times say that it was given back.
-- Locks and reads as the renewal does.
SET NOCOUNT ON;
DECLARE @keys nvarchar(max) = :keys;
DECLARE @now datetime2(7);
DECLARE @asked TABLE (place int NOT NULL, lease_name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    holder_id nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL, lease_epoch bigint NOT NULL, lease_us bigint NOT NULL);
DECLARE @mine TABLE (lease_name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @changed TABLE (lease_name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    holder_id nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL, lease_epoch bigint NOT NULL, acquired_at datetime2(7) NOT NULL,
    renewed_at datetime2(7) NOT NULL, expires_at datetime2(7) NOT NULL, step_down_epoch bigint NOT NULL,
    acquire_nonce nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL, lease_id nvarchar(36) COLLATE Latin1_General_BIN2 NOT NULL);
INSERT INTO @asked (place, lease_name, holder_id, lease_epoch, lease_us)
SELECT a.place, REPLACE(REPLACE(REPLACE(a.lease_name COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%'),
       REPLACE(REPLACE(REPLACE(a.holder_id COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%'), a.lease_epoch, a.lease_us
  FROM OPENJSON(@keys) WITH (place int '$.place', lease_name nvarchar(384) '$.name', holder_id nvarchar(768) '$.holder',
                             lease_epoch bigint '$.epoch', lease_us bigint '$.lease_us') AS a;
BEGIN TRANSACTION;
INSERT INTO @mine (lease_name)
SELECT l.lease_name FROM @asked AS a
 INNER LOOP JOIN fencehold_leases AS l WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK) ON l.lease_name = a.lease_name;
SET @now = SYSUTCDATETIME();
UPDATE l
   SET renewed_at = @now, expires_at = @now
OUTPUT inserted.lease_name, inserted.holder_id, inserted.lease_epoch, inserted.acquired_at, inserted.renewed_at,
       inserted.expires_at, inserted.step_down_epoch, inserted.acquire_nonce, inserted.lease_id
  INTO @changed (lease_name, holder_id, lease_epoch, acquired_at, renewed_at, expires_at, step_down_epoch, acquire_nonce, lease_id)
  FROM @mine AS m
 INNER LOOP JOIN fencehold_leases AS l WITH (ROWLOCK) ON l.lease_name = m.lease_name
 WHERE l.expires_at > @now
   AND EXISTS (SELECT 1 FROM @asked AS a
                WHERE a.lease_name = l.lease_name AND a.holder_id = l.holder_id AND a.lease_epoch = l.lease_epoch);
COMMIT TRANSACTION;
SELECT CASE WHEN c.lease_name IS NOT NULL THEN N'yes'
            WHEN s.lease_name IS NULL THEN N'absent'
            WHEN s.expires_at <= @now THEN N'lapsed'
            WHEN s.holder_id <> a.holder_id OR s.lease_epoch <> a.lease_epoch THEN N'held_by_another'
            ELSE N'busy' END AS verdict,
       a.lease_name, COALESCE(c.holder_id, s.holder_id) AS holder_id, COALESCE(c.lease_epoch, s.lease_epoch) AS lease_epoch,
       COALESCE(c.acquired_at, s.acquired_at) AS acquired_at, COALESCE(c.renewed_at, s.renewed_at) AS renewed_at,
       COALESCE(c.expires_at, s.expires_at) AS expires_at, @now AS now,
       CASE WHEN COALESCE(c.step_down_epoch, s.step_down_epoch) = COALESCE(c.lease_epoch, s.lease_epoch) THEN 1 ELSE 0 END AS step_down,
       COALESCE(c.acquire_nonce, s.acquire_nonce) AS acquire_nonce,
       COALESCE(c.lease_id, s.lease_id) AS lease_id
  FROM @asked AS a
  -- By key, not by place: a key that was asked for twice is changed once and answered twice.
  LEFT JOIN @changed AS c ON c.lease_name = a.lease_name AND c.holder_id = a.holder_id AND c.lease_epoch = a.lease_epoch
  LEFT LOOP JOIN fencehold_leases AS s WITH (READUNCOMMITTED) ON s.lease_name = a.lease_name
 ORDER BY a.place;
