-- name: save
-- rules: live.save.is_holder
-- Lock first, then read the clock; what is refused answers the row that was locked. The lock is an UPDATE that changes
-- nothing, for that is one on every server; UPDLOCK keeps it until the end also where a row that did not change would be
-- let go.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256) = :kind, @id nvarchar(512) = :id, @holder nvarchar(256) = :holder, @token bigint = :token,
        @state nvarchar(256) = :state, @document nvarchar(max) = :document;
DECLARE @now datetime2(7), @is_saved bit;
DECLARE @seen TABLE (id nvarchar(512) COLLATE Latin1_General_BIN2 NOT NULL, state nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL,
    state_timestamp datetime2(7) NOT NULL, document nvarchar(max) NOT NULL, token bigint NOT NULL,
    holder_id nvarchar(256) COLLATE Latin1_General_BIN2 NULL, leased_at datetime2(7) NULL, lease_ms bigint NULL, expires_at datetime2(7) NULL);
BEGIN TRANSACTION;
UPDATE fencehold_items WITH (UPDLOCK, ROWLOCK) SET token = token WHERE kind = @kind AND id = @id;
SET @now = SYSUTCDATETIME();
UPDATE fencehold_items WITH (ROWLOCK)
   SET state = COALESCE(@state, state),
       state_timestamp = CASE WHEN @state IS NULL THEN state_timestamp ELSE @now END,
       document = COALESCE(@document, document)
OUTPUT inserted.id, inserted.state, inserted.state_timestamp, inserted.document, inserted.token,
       inserted.holder_id, inserted.leased_at, inserted.lease_ms, inserted.expires_at
  INTO @seen (id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at)
 WHERE kind = @kind AND id = @id AND holder_id = @holder AND token = @token AND expires_at > @now;
SET @is_saved = @@ROWCOUNT;
IF @is_saved = 0
    INSERT INTO @seen (id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at)
    SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at
      FROM fencehold_items WHERE kind = @kind AND id = @id;
COMMIT TRANSACTION;
SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at, @now AS now, @is_saved AS is_saved
  FROM @seen;
