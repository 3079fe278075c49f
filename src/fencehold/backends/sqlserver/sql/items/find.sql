-- name: find
-- With a state, what is in other states is not read. No text: in all of them.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256) = :kind, @state nvarchar(256) = :state, @limit int = :limit;
IF DATALENGTH(@state) = 0
    SELECT TOP (@limit) id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at,
           SYSUTCDATETIME() AS now
      FROM fencehold_items WHERE kind = @kind
     ORDER BY state_timestamp, number;
ELSE
    SELECT TOP (@limit) id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at,
           SYSUTCDATETIME() AS now
      FROM fencehold_items WHERE kind = @kind AND state = @state
     ORDER BY state_timestamp, number;
