-- name: order_lock
-- only: postgres, because SQLite has one writer: claims in order take turns, one transaction each.
SELECT pg_advisory_xact_lock(1718511459, hashtext('fencehold_outbox'));
