-- name: delete
-- rules: live.delete.is_holder
-- Locks and answers as the save does; of what is gone, the document is not sent back.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256) = :kind, @id nvarchar(512) = :id, @holder nvarchar(256) = :holder, @token bigint = :token;
DECLARE @now datetime2(7), @is_gone bit;
DECLARE @seen TABLE (id nvarchar(512) COLLATE Latin1_General_BIN2 NOT NULL, state nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL,
    state_timestamp datetime2(7) NOT NULL, document nvarchar(max) NOT NULL, token bigint NOT NULL,
    holder_id nvarchar(256) COLLATE Latin1_General_BIN2 NULL, leased_at datetime2(7) NULL, lease_ms bigint NULL, expires_at datetime2(7) NULL);
BEGIN TRANSACTION;
UPDATE fencehold_items WITH (UPDLOCK, ROWLOCK) SET token = token WHERE kind = @kind AND id = @id;
SET @now = SYSUTCDATETIME();
DELETE FROM fencehold_items WITH (ROWLOCK)
OUTPUT deleted.id, deleted.state, deleted.state_timestamp, N'', deleted.token,
       deleted.holder_id, deleted.leased_at, deleted.lease_ms, deleted.expires_at
  INTO @seen (id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at)
 WHERE kind = @kind AND id = @id AND holder_id = @holder AND token = @token AND expires_at > @now;
SET @is_gone = @@ROWCOUNT;
IF @is_gone = 0
    INSERT INTO @seen (id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at)
    SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at
      FROM fencehold_items WHERE kind = @kind AND id = @id;
COMMIT TRANSACTION;
SELECT id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at, @now AS now, @is_gone AS is_gone
  FROM @seen;
