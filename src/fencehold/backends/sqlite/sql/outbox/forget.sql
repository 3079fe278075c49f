-- name: forget
-- only: sqlite, because a DELETE of its cannot be part of another.
-- Nobody can be given a purged event again, so who met it need not be remembered.
DELETE FROM fencehold_outbox_consumed WHERE tracking_id IN (SELECT value FROM json_each(:tracking_ids));
