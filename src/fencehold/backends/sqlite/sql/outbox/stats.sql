-- name: stats
-- Finished events are counted only when asked for, and not one by one: they are all that is left of the total.
SELECT (SELECT count(*) FROM fencehold_outbox WHERE status IN ('PENDING', 'FAILED') AND status = 'PENDING') AS pending,
       (SELECT count(*) FROM fencehold_outbox WHERE status = 'PROCESSING') AS processing,
       CASE WHEN :whole THEN (SELECT count(*) FROM fencehold_outbox) END AS total,
       (SELECT count(*) FROM fencehold_outbox WHERE status IN ('PENDING', 'FAILED') AND status = 'FAILED') AS failed,
       (SELECT count(*) FROM fencehold_outbox WHERE status = 'DEAD_LETTER') AS dead_letter,
       (SELECT min(due_at) FROM fencehold_outbox WHERE status IN ('PENDING', 'FAILED')) AS oldest_due_at,
       (SELECT count(*) FROM fencehold_outbox
         WHERE status = 'PROCESSING' AND locked_until <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) AS lapsed,
       (SELECT ran_at FROM fencehold_outbox_reaper) AS ran_at,
       coalesce((SELECT runs FROM fencehold_outbox_reaper), 0) AS runs,
       strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now;
