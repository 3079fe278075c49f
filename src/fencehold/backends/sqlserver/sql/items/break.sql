-- name: break
-- rules: absent.break.always free.break.always live.break.is_own_lease
-- What another holds is only read, never locked. Our own are freed in the order of their rows, so that two who break the
-- same ones wait for each other in one direction only. It is one UPDATE, so nothing is locked before it: a lease of ours
-- that lapses while it waits is freed although it is over, which is the same. The answer is whatever is held afterwards
-- and the place of its key: refused, or our own still, which is asked for again, because there are servers whose UPDATE
-- passes over a row that changed while it waited for it. Token 0 means whatever lease this holder has. In a list, names
-- are written as item_rows.py says.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256) = :kind, @keys nvarchar(max) = :keys;
DECLARE @now datetime2(7);
DECLARE @asked TABLE (place int NOT NULL, id nvarchar(512) COLLATE Latin1_General_BIN2 NOT NULL,
    holder_id nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL, token bigint NOT NULL);
DECLARE @mine TABLE (number bigint NOT NULL PRIMARY KEY, holder_id nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL, token bigint NOT NULL);
INSERT INTO @asked (place, id, holder_id, token)
SELECT a.place, REPLACE(REPLACE(REPLACE(a.id COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%'),
       REPLACE(REPLACE(REPLACE(a.holder_id COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%'), a.token
  FROM OPENJSON(@keys) WITH (place int '$.place', id nvarchar(2000) '$.id', holder_id nvarchar(2000) '$.holder', token bigint '$.token') AS a;
INSERT INTO @mine (number, holder_id, token)
SELECT i.number, a.holder_id, a.token
  FROM @asked AS a JOIN fencehold_items AS i WITH (INDEX (fencehold_items_one)) ON i.kind = @kind AND i.id = a.id
 WHERE i.holder_id = a.holder_id AND a.token IN (0, i.token)
OPTION (LOOP JOIN, FORCE ORDER);
SET @now = SYSUTCDATETIME();
UPDATE i
   SET holder_id = NULL, leased_at = NULL, lease_ms = NULL, expires_at = NULL
  FROM @mine AS m JOIN fencehold_items AS i WITH (UPDLOCK, ROWLOCK) ON i.number = m.number
 WHERE i.holder_id = m.holder_id AND m.token IN (0, i.token) AND i.expires_at > @now
OPTION (LOOP JOIN, FORCE ORDER);
SET @now = SYSUTCDATETIME();
SELECT i.id, i.state, i.state_timestamp, i.document, i.token, i.holder_id, i.leased_at, i.lease_ms, i.expires_at, @now AS now, a.place,
       CASE WHEN i.holder_id = a.holder_id AND a.token IN (0, i.token) THEN 1 ELSE 0 END AS is_own
  FROM @asked AS a JOIN fencehold_items AS i WITH (INDEX (fencehold_items_one)) ON i.kind = @kind AND i.id = a.id
 WHERE i.expires_at > @now
OPTION (LOOP JOIN, FORCE ORDER);
