-- name: renew
-- rules: live.renew.is_holder
-- Lock first, then read the clock: a renewal that had to wait must not revive a lease that lapsed meanwhile. The lock is
-- an UPDATE that changes nothing, for that is one on every server. READPAST: one stuck row must not hold up the renewal
-- of all the others (with READCOMMITTEDLOCK, without which READ_COMMITTED_SNAPSHOT does not go together with it). What is
-- ours as before and was passed over is answered without a time; that read must not wait either, so it takes the row as
-- it stands, committed or not. Each row is found by its key, whatever the statistics say, so no other is locked. In a
-- list, names are written as item_rows.py says.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256) = :kind, @keys nvarchar(max) = :keys, @lease_ms bigint = :lease_ms;
DECLARE @now datetime2(7), @until datetime2(7);
DECLARE @asked TABLE (id nvarchar(512) COLLATE Latin1_General_BIN2 NOT NULL, holder_id nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL,
    token bigint NOT NULL);
DECLARE @mine TABLE (number bigint NOT NULL, holder_id nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL, token bigint NOT NULL);
DECLARE @renewed TABLE (number bigint NOT NULL PRIMARY KEY, id nvarchar(512) COLLATE Latin1_General_BIN2 NOT NULL,
    holder_id nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL, token bigint NOT NULL, expires_at datetime2(7) NOT NULL);
INSERT INTO @asked (id, holder_id, token)
SELECT REPLACE(REPLACE(REPLACE(a.id COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%'),
       REPLACE(REPLACE(REPLACE(a.holder_id COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%'), a.token
  FROM OPENJSON(@keys) WITH (id nvarchar(2000) '$.id', holder_id nvarchar(2000) '$.holder', token bigint '$.token') AS a;
BEGIN TRANSACTION;
UPDATE i
   SET token = i.token
OUTPUT inserted.number, inserted.holder_id, inserted.token INTO @mine (number, holder_id, token)
  FROM @asked AS a
  JOIN fencehold_items AS i WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX (fencehold_items_one)) ON i.kind = @kind AND i.id = a.id
 WHERE i.holder_id = a.holder_id AND i.token = a.token
OPTION (LOOP JOIN, FORCE ORDER);
SET @now = SYSUTCDATETIME();
SET @until = DATEADD(millisecond, CAST(@lease_ms % 1000 AS int), DATEADD(second, CAST(@lease_ms / 1000 AS int), @now));
UPDATE i
   SET lease_ms = @lease_ms, expires_at = @until
OUTPUT inserted.number, inserted.id, inserted.holder_id, inserted.token, inserted.expires_at
  INTO @renewed (number, id, holder_id, token, expires_at)
  FROM @mine AS m
  JOIN fencehold_items AS i WITH (ROWLOCK) ON i.number = m.number
 WHERE i.holder_id = m.holder_id AND i.token = m.token AND i.expires_at > @now
OPTION (LOOP JOIN, FORCE ORDER);
COMMIT TRANSACTION;
SELECT r.id, r.holder_id, r.token, r.expires_at FROM @renewed AS r
UNION ALL
SELECT i.id, i.holder_id, i.token, NULL
  FROM @asked AS a
  JOIN fencehold_items AS i WITH (READUNCOMMITTED, INDEX (fencehold_items_one)) ON i.kind = @kind AND i.id = a.id
 WHERE i.holder_id = a.holder_id AND i.token = a.token AND i.expires_at > @now
   AND NOT EXISTS (SELECT 1 FROM @renewed AS r WHERE r.number = i.number)
OPTION (LOOP JOIN, FORCE ORDER);
