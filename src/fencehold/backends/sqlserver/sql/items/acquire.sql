-- name: acquire
-- rules: free.acquire.always live.acquire.is_own
-- What another holds is only read, so that asking for it never stands in the way of its renewal. Lock first, then read
-- the clock: the lock is an UPDATE that changes nothing, for that is one on every server; UPDLOCK keeps it until the end
-- also where a row that did not change would be let go. A row without a grant: the item as it was seen; whoever lost it
-- while waiting for the lock asks again.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256) = :kind, @id nvarchar(512) = :id, @holder nvarchar(256) = :holder, @lease_ms bigint = :lease_ms;
DECLARE @now datetime2(7) = SYSUTCDATETIME();
DECLARE @granted TABLE (id nvarchar(512) COLLATE Latin1_General_BIN2 NOT NULL, state nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL,
    state_timestamp datetime2(7) NOT NULL, document nvarchar(max) NOT NULL, token bigint NOT NULL,
    holder_id nvarchar(256) COLLATE Latin1_General_BIN2 NULL, leased_at datetime2(7) NULL, lease_ms bigint NULL, expires_at datetime2(7) NULL);
IF EXISTS (SELECT 1 FROM fencehold_items
            WHERE kind = @kind AND id = @id AND (holder_id IS NULL OR expires_at <= @now OR holder_id = @holder))
BEGIN
    BEGIN TRANSACTION;
    UPDATE fencehold_items WITH (UPDLOCK, ROWLOCK) SET token = token WHERE kind = @kind AND id = @id;
    SET @now = SYSUTCDATETIME();
    UPDATE fencehold_items WITH (ROWLOCK)
       SET token = NEXT VALUE FOR fencehold_items_token, holder_id = @holder, leased_at = @now, lease_ms = @lease_ms,
           expires_at = DATEADD(millisecond, CAST(@lease_ms % 1000 AS int), DATEADD(second, CAST(@lease_ms / 1000 AS int), @now))
    OUTPUT inserted.id, inserted.state, inserted.state_timestamp, inserted.document, inserted.token,
           inserted.holder_id, inserted.leased_at, inserted.lease_ms, inserted.expires_at
      INTO @granted (id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at)
     WHERE kind = @kind AND id = @id AND (holder_id IS NULL OR expires_at <= @now OR holder_id = @holder);
    COMMIT TRANSACTION;
END
IF EXISTS (SELECT 1 FROM @granted)
    SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at, @now AS now, 1 AS is_granted
      FROM @granted;
ELSE
    SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at,
           SYSUTCDATETIME() AS now, 0 AS is_granted
      FROM fencehold_items WHERE kind = @kind AND id = @id;
