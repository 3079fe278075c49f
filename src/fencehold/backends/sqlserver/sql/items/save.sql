-- name: save
-- rules: live.save.is_holder
-- Lock first, then read the clock; what is refused answers the row that was locked. The lock is an UPDATE that changes
-- nothing, for that is one on every server; UPDLOCK keeps it until the end also where a row that did not change would be
-- let go. The index is named: of a small table a plan would read, and wait for, all rows. No text: it stays as it is.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256) = :kind, @id nvarchar(512) = :id, @holder nvarchar(256) = :holder, @token bigint = :token,
        @state nvarchar(256) = :state, @document nvarchar(max) = :document;
DECLARE @now datetime2(7), @is_saved bit, @is_there bit = 0, @seen_state nvarchar(256), @seen_since datetime2(7),
        @seen_document nvarchar(max), @seen_token bigint, @seen_holder nvarchar(256), @leased_at datetime2(7), @lease_ms bigint,
        @expires_at datetime2(7);
BEGIN TRANSACTION;
UPDATE i SET token = i.token FROM fencehold_items AS i WITH (UPDLOCK, ROWLOCK, INDEX (fencehold_items_one))
 WHERE i.kind = @kind AND i.id = @id;
SET @now = SYSUTCDATETIME();
UPDATE i
   SET state = COALESCE(NULLIF(@state, N''), state),
       state_timestamp = CASE WHEN DATALENGTH(@state) = 0 THEN state_timestamp ELSE @now END,
       document = CASE WHEN DATALENGTH(@document) = 0 THEN document ELSE @document END
  FROM fencehold_items AS i WITH (ROWLOCK, INDEX (fencehold_items_one))
 WHERE kind = @kind AND id = @id AND holder_id = @holder AND token = @token AND expires_at > @now;
SET @is_saved = @@ROWCOUNT;
SELECT @is_there = 1, @seen_state = state, @seen_since = state_timestamp, @seen_document = document, @seen_token = token,
       @seen_holder = holder_id, @leased_at = leased_at, @lease_ms = lease_ms, @expires_at = expires_at
  FROM fencehold_items WITH (INDEX (fencehold_items_one)) WHERE kind = @kind AND id = @id;
COMMIT TRANSACTION;
SELECT @id AS id, @seen_state AS state, @seen_since AS state_timestamp, @seen_document AS document, @seen_token AS token,
       @seen_holder AS holder_id, @leased_at AS leased_at, @lease_ms AS lease_ms, @expires_at AS expires_at,
       @now AS now, @is_saved AS is_saved
 WHERE @is_there = 1;
