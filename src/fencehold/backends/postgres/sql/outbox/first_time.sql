-- name: first_time
-- A second transaction with the same event waits here for the first to end, and then knows. In another outbox than that of
-- this id, in another database say, nothing is written, nor in a table that hides the outbox's own in the search_path.
WITH here AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM fencehold_outbox_identity AS i
                     JOIN pg_catalog.pg_class AS own ON own.oid = i.tableoid
                     JOIN pg_catalog.pg_class AS met ON met.oid = pg_catalog.to_regclass('fencehold_outbox_consumed')
                    WHERE i.outbox_id = CAST(:outbox_id AS text) AND met.relnamespace = own.relnamespace) AS is_ours
), met AS (
    INSERT INTO fencehold_outbox_consumed (tracking_id, consumer_id)
    SELECT CAST(:tracking_id AS uuid), CAST(:consumer AS text) FROM here WHERE here.is_ours
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT EXISTS (SELECT FROM met) AS is_first, here.is_ours FROM here;
