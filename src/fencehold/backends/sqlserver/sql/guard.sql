-- name: guard
-- rules: live.fence.is_holder
-- A condition for the WHERE of one statement. REPEATABLEREAD keeps the shared lock on the term's row until the
-- statement's transaction ends, with row versions or without: a takeover changes that row, a renewal does not.
EXISTS (SELECT 1 FROM fencehold_leases_terms AS fencehold_t WITH (REPEATABLEREAD, ROWLOCK)
          JOIN fencehold_leases AS fencehold_l ON fencehold_l.lease_name = fencehold_t.lease_name
         WHERE fencehold_t.lease_name = :fencehold_name AND fencehold_t.lease_epoch = :fencehold_epoch
           AND fencehold_l.holder_id = :fencehold_holder AND fencehold_l.lease_epoch = fencehold_t.lease_epoch
           AND fencehold_l.lease_id = :fencehold_lease_id
           AND fencehold_l.expires_at > SYSUTCDATETIME())
