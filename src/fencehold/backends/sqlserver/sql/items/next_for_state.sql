-- name: next_for_state
-- rules: free.next.is_in_state
-- Lock first, then read the clock. What another session has locked is being taken: READPAST leaves it to it (with
-- READCOMMITTEDLOCK, without which READ_COMMITTED_SNAPSHOT does not go together with it). The UPDATE asks for everything
-- once more, so where these hints mean nothing it waits for the other, and then leaves it too. The index is named, for a
-- plan that reads another way would lock what is finished. In a list, names are written as item_rows.py says.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256) = :kind, @state nvarchar(256) = :state, @limit int = :limit, @holder nvarchar(256) = :holder,
        @lease_ms bigint = :lease_ms, @skip nvarchar(max) = :skip, @since datetime2(7) = :since, @before datetime2(7) = :before;
DECLARE @now datetime2(7) = SYSUTCDATETIME(), @until datetime2(7);
DECLARE @skipped TABLE (id nvarchar(512) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY NONCLUSTERED);
DECLARE @next TABLE (number bigint NOT NULL PRIMARY KEY);
DECLARE @taken TABLE (id nvarchar(512) COLLATE Latin1_General_BIN2 NOT NULL, state nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL,
    state_timestamp datetime2(7) NOT NULL, document nvarchar(max) NOT NULL, token bigint NOT NULL,
    holder_id nvarchar(256) COLLATE Latin1_General_BIN2 NULL, leased_at datetime2(7) NULL, lease_ms bigint NULL, expires_at datetime2(7) NULL);
INSERT INTO @skipped (id)
SELECT REPLACE(REPLACE(REPLACE(a.id COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
  FROM OPENJSON(@skip) WITH (id nvarchar(2000) '$.id') AS a;
BEGIN TRANSACTION;
INSERT INTO @next (number)
SELECT TOP (@limit) i.number
  FROM fencehold_items AS i WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX (fencehold_items_state_idx))
 WHERE i.kind = @kind AND i.state = @state AND (i.holder_id IS NULL OR i.expires_at <= @now)
   AND i.state_timestamp >= @since AND i.state_timestamp < @before
   AND NOT EXISTS (SELECT 1 FROM @skipped AS s WHERE s.id = i.id)
 ORDER BY i.state_timestamp, i.number;
SET @now = SYSUTCDATETIME();
SET @until = DATEADD(millisecond, CAST(@lease_ms % 1000 AS int), DATEADD(second, CAST(@lease_ms / 1000 AS int), @now));
UPDATE i
   SET token = NEXT VALUE FOR fencehold_items_token, holder_id = @holder, leased_at = @now, lease_ms = @lease_ms, expires_at = @until
OUTPUT inserted.id, inserted.state, inserted.state_timestamp, inserted.document, inserted.token,
       inserted.holder_id, inserted.leased_at, inserted.lease_ms, inserted.expires_at
  INTO @taken (id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at)
  FROM @next AS n
  JOIN fencehold_items AS i WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) ON i.number = n.number
 WHERE i.state = @state AND (i.holder_id IS NULL OR i.expires_at <= @now)
OPTION (LOOP JOIN, FORCE ORDER);
COMMIT TRANSACTION;
SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at, @now AS now FROM @taken;
