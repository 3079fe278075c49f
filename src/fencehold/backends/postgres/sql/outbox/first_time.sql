-- name: first_time
-- A second transaction with the same event waits here for the first to end, and then knows. In another outbox than that of
-- this id, in another database say, nothing is written.
WITH here AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM fencehold_outbox_identity WHERE outbox_id = CAST(:outbox_id AS text)) AS is_ours
), met AS (
    INSERT INTO fencehold_outbox_consumed (tracking_id, consumer_id)
    SELECT CAST(:tracking_id AS uuid), CAST(:consumer AS text) FROM here WHERE here.is_ours
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT EXISTS (SELECT FROM met) AS is_first, here.is_ours FROM here;
