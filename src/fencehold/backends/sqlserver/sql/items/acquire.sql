-- name: acquire
-- rules: free.acquire.always live.acquire.is_own
-- What another holds is only read, so that asking for it never stands in the way of its renewal. Lock first, then read
-- the clock: the lock is an UPDATE that changes nothing, for that is one on every server; UPDLOCK keeps it until the end
-- also where a row that did not change would be let go. A row without a grant: the item as it was seen; whoever lost it
-- while waiting for the lock asks again. The index is named: of a small table a plan would read, and wait for, all rows.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256) = :kind, @id nvarchar(512) = :id, @holder nvarchar(256) = :holder, @lease_ms bigint = :lease_ms;
DECLARE @now datetime2(7), @is_granted bit = 0, @is_there bit = 0, @seen_state nvarchar(256), @seen_since datetime2(7),
        @seen_document nvarchar(max), @seen_token bigint, @seen_holder nvarchar(256), @leased_at datetime2(7), @seen_lease_ms bigint,
        @expires_at datetime2(7);
SELECT @is_there = 1, @seen_state = state, @seen_since = state_timestamp, @seen_document = document, @seen_token = token,
       @seen_holder = holder_id, @leased_at = leased_at, @seen_lease_ms = lease_ms, @expires_at = expires_at
  FROM fencehold_items WITH (INDEX (fencehold_items_one)) WHERE kind = @kind AND id = @id;
SET @now = SYSUTCDATETIME();
IF @is_there = 1 AND (@seen_holder IS NULL OR @expires_at <= @now OR @seen_holder = @holder COLLATE Latin1_General_BIN2)
BEGIN
    BEGIN TRANSACTION;
    UPDATE i SET token = i.token FROM fencehold_items AS i WITH (UPDLOCK, ROWLOCK, INDEX (fencehold_items_one))
     WHERE i.kind = @kind AND i.id = @id;
    SET @now = SYSUTCDATETIME();
    UPDATE i
       SET token = NEXT VALUE FOR fencehold_items_token, holder_id = @holder, leased_at = @now, lease_ms = @lease_ms,
           expires_at = DATEADD(millisecond, CAST(@lease_ms % 1000 AS int), DATEADD(second, CAST(@lease_ms / 1000 AS int), @now))
      FROM fencehold_items AS i WITH (ROWLOCK, INDEX (fencehold_items_one))
     WHERE kind = @kind AND id = @id AND (holder_id IS NULL OR expires_at <= @now OR holder_id = @holder);
    SET @is_granted = @@ROWCOUNT;
    SELECT @is_there = 1, @seen_state = state, @seen_since = state_timestamp, @seen_document = document, @seen_token = token,
           @seen_holder = holder_id, @leased_at = leased_at, @seen_lease_ms = lease_ms, @expires_at = expires_at
      FROM fencehold_items WITH (INDEX (fencehold_items_one)) WHERE kind = @kind AND id = @id;
    COMMIT TRANSACTION;
END
SELECT @id AS id, @seen_state AS state, @seen_since AS state_timestamp, @seen_document AS document, @seen_token AS token,
       @seen_holder AS holder_id, @leased_at AS leased_at, @seen_lease_ms AS lease_ms, @expires_at AS expires_at,
       @now AS now, @is_granted AS is_granted
 WHERE @is_there = 1;
