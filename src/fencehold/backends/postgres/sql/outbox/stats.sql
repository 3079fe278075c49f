-- name: stats
-- Finished events are counted only when asked for: there may be millions.
SELECT (SELECT count(*) FROM fencehold_outbox WHERE status IN ('PENDING', 'FAILED') AND status = 'PENDING') AS pending,
       (SELECT count(*) FROM fencehold_outbox WHERE status = 'PROCESSING') AS processing,
       (SELECT count(*) FROM fencehold_outbox WHERE :whole AND status = 'COMPLETED') AS completed,
       (SELECT count(*) FROM fencehold_outbox WHERE status IN ('PENDING', 'FAILED') AND status = 'FAILED') AS failed,
       (SELECT count(*) FROM fencehold_outbox WHERE status = 'DEAD_LETTER') AS dead_letter,
       (SELECT coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(due_at))), 0)::float8
          FROM fencehold_outbox WHERE status IN ('PENDING', 'FAILED')) AS oldest_pending_age_s,
       (SELECT count(*) FROM fencehold_outbox
         WHERE status = 'PROCESSING' AND locked_until <= statement_timestamp()) AS lapsed,
       (SELECT extract(epoch FROM clock_timestamp() - ran_at)::float8 FROM fencehold_outbox_reaper) AS ran_s_ago,
       coalesce((SELECT runs FROM fencehold_outbox_reaper), 0) AS runs;
