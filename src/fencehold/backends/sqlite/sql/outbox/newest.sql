-- name: newest
-- only: sqlite, because a file that has changed says not what: only a new event is a hint, not every claim of others.
SELECT max(id) FROM fencehold_outbox;
