-- name: put
-- rules: absent.put.always free.put.always live.put.is_own
-- Lock first, then read the clock. The lock is an UPDATE that changes nothing, for that is one on every server; UPDLOCK
-- keeps it until the end also where a row that did not change would be let go. Whoever finds that another has put it
-- first goes on as if it had been there before. No row in the answer: it was put and deleted meanwhile. The index is
-- named: of a small table a plan would read, and wait for, all rows.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256) = :kind, @id nvarchar(512) = :id, @state nvarchar(256) = :state, @document nvarchar(max) = :document,
        @holder nvarchar(256) = :holder;
DECLARE @now datetime2(7) = SYSUTCDATETIME(), @is_put bit = 0, @is_there bit = 0, @seen_state nvarchar(256), @seen_since datetime2(7),
        @seen_document nvarchar(max), @seen_token bigint, @seen_holder nvarchar(256), @leased_at datetime2(7), @lease_ms bigint,
        @expires_at datetime2(7);
IF NOT EXISTS (SELECT 1 FROM fencehold_items WITH (INDEX (fencehold_items_one)) WHERE kind = @kind AND id = @id)
BEGIN
    BEGIN TRY
        INSERT INTO fencehold_items (kind, id, state, state_timestamp, document) VALUES (@kind, @id, @state, @now, @document);
        SELECT @is_put = 1, @is_there = 1, @seen_state = @state, @seen_since = @now, @seen_document = @document, @seen_token = 0;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
        IF ERROR_NUMBER() NOT IN (2601, 2627)
        BEGIN
            THROW;
        END
    END CATCH
END
IF @is_put = 0
BEGIN
    BEGIN TRANSACTION;
    UPDATE i SET token = i.token FROM fencehold_items AS i WITH (UPDLOCK, ROWLOCK, INDEX (fencehold_items_one))
     WHERE i.kind = @kind AND i.id = @id;
    SET @now = SYSUTCDATETIME();
    UPDATE i
       SET state = @state, state_timestamp = @now, document = @document
      FROM fencehold_items AS i WITH (ROWLOCK, INDEX (fencehold_items_one))
     WHERE kind = @kind AND id = @id AND (holder_id IS NULL OR expires_at <= @now OR holder_id = @holder);
    SET @is_put = @@ROWCOUNT;
    SELECT @is_there = 1, @seen_state = state, @seen_since = state_timestamp, @seen_document = document, @seen_token = token,
           @seen_holder = holder_id, @leased_at = leased_at, @lease_ms = lease_ms, @expires_at = expires_at
      FROM fencehold_items WITH (INDEX (fencehold_items_one)) WHERE kind = @kind AND id = @id;
    COMMIT TRANSACTION;
END
SELECT @id AS id, @seen_state AS state, @seen_since AS state_timestamp, @seen_document AS document, @seen_token AS token,
       @seen_holder AS holder_id, @leased_at AS leased_at, @lease_ms AS lease_ms, @expires_at AS expires_at,
       @now AS now, @is_put AS is_put
 WHERE @is_there = 1;
