-- name: put
-- rules: absent.put.always free.put.always live.put.is_own
-- Lock first, then read the clock. The lock is an UPDATE that changes nothing, for that is one on every server; UPDLOCK
-- keeps it until the end also where a row that did not change would be let go. Whoever finds that another has put it
-- first goes on as if it had been there before. No row in the answer: it was put and deleted meanwhile.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256) = :kind, @id nvarchar(512) = :id, @state nvarchar(256) = :state, @document nvarchar(max) = :document,
        @holder nvarchar(256) = :holder;
DECLARE @now datetime2(7) = SYSUTCDATETIME(), @is_put bit = 0;
DECLARE @seen TABLE (id nvarchar(512) COLLATE Latin1_General_BIN2 NOT NULL, state nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL,
    state_timestamp datetime2(7) NOT NULL, document nvarchar(max) NOT NULL, token bigint NOT NULL,
    holder_id nvarchar(256) COLLATE Latin1_General_BIN2 NULL, leased_at datetime2(7) NULL, lease_ms bigint NULL, expires_at datetime2(7) NULL);
IF NOT EXISTS (SELECT 1 FROM fencehold_items WHERE kind = @kind AND id = @id)
BEGIN
    BEGIN TRY
        INSERT INTO fencehold_items (kind, id, state, state_timestamp, document)
        VALUES (@kind, @id, @state, @now, @document);
        INSERT INTO @seen (id, state, state_timestamp, document, token) VALUES (@id, @state, @now, @document, 0);
        SET @is_put = 1;
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
    UPDATE fencehold_items WITH (UPDLOCK, ROWLOCK) SET token = token WHERE kind = @kind AND id = @id;
    SET @now = SYSUTCDATETIME();
    UPDATE fencehold_items WITH (ROWLOCK)
       SET state = @state, state_timestamp = @now, document = @document
    OUTPUT inserted.id, inserted.state, inserted.state_timestamp, inserted.document, inserted.token,
           inserted.holder_id, inserted.leased_at, inserted.lease_ms, inserted.expires_at
      INTO @seen (id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at)
     WHERE kind = @kind AND id = @id AND (holder_id IS NULL OR expires_at <= @now OR holder_id = @holder);
    SET @is_put = @@ROWCOUNT;
    IF @is_put = 0
        INSERT INTO @seen (id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at)
        SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at
          FROM fencehold_items WHERE kind = @kind AND id = @id;
    COMMIT TRANSACTION;
END
SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at, @now AS now, @is_put AS is_put
  FROM @seen;
