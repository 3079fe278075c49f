-- name: next_for_state
-- rules: free.next.is_in_state
-- Without a lease expiresAt is 0; a deleted item has no state.
SELECT * FROM c WHERE c.pk = @partition AND c.state = @state AND c.lease.expiresAt <= @now
   AND c.stateTimestamp >= @since AND c.stateTimestamp < @before ORDER BY c.stateTimestamp;
