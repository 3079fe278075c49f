-- name: notify
-- only: postgres, because it is the one that can notify. One notification for all events of a bulk load.
SELECT pg_notify('fencehold_outbox', 'added ' || CAST(:priorities AS text));
