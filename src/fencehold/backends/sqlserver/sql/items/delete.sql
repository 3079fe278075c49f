-- name: delete
-- rules: live.delete.is_holder
-- Lock first, then read the clock; the answer is the row that was locked. The lock is an UPDATE that changes nothing, for
-- that is one on every server; UPDLOCK keeps it until the end also where a row that did not change would be let go.
-- The index is named: of a small table a plan would read, and wait for, all rows.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256) = :kind, @id nvarchar(512) = :id, @holder nvarchar(256) = :holder, @token bigint = :token;
DECLARE @now datetime2(7), @is_gone bit, @is_there bit = 0, @seen_state nvarchar(256), @seen_since datetime2(7),
        @seen_document nvarchar(max), @seen_token bigint, @seen_holder nvarchar(256), @leased_at datetime2(7), @lease_ms bigint,
        @expires_at datetime2(7);
BEGIN TRANSACTION;
UPDATE i SET token = i.token FROM fencehold_items AS i WITH (UPDLOCK, ROWLOCK, INDEX (fencehold_items_one))
 WHERE i.kind = @kind AND i.id = @id;
SELECT @is_there = 1, @seen_state = state, @seen_since = state_timestamp, @seen_document = document, @seen_token = token,
       @seen_holder = holder_id, @leased_at = leased_at, @lease_ms = lease_ms, @expires_at = expires_at
  FROM fencehold_items WITH (INDEX (fencehold_items_one)) WHERE kind = @kind AND id = @id;
SET @now = SYSUTCDATETIME();
DELETE i FROM fencehold_items AS i WITH (ROWLOCK, INDEX (fencehold_items_one))
 WHERE kind = @kind AND id = @id AND holder_id = @holder AND token = @token AND expires_at > @now;
SET @is_gone = @@ROWCOUNT;
COMMIT TRANSACTION;
SELECT @id AS id, @seen_state AS state, @seen_since AS state_timestamp, @seen_document AS document, @seen_token AS token,
       @seen_holder AS holder_id, @leased_at AS leased_at, @lease_ms AS lease_ms, @expires_at AS expires_at,
       @now AS now, @is_gone AS is_gone
 WHERE @is_there = 1;
