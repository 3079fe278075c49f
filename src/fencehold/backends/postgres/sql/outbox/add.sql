-- name: add
-- A tracking id that is known already is left alone. One notification for all of them; its text names the priorities.
-- With an outbox_id nothing is added in any other outbox, that of another database say, nor in a table of the same name that
-- hides the outbox's own in this session's search_path: one NULL is answered then.
WITH here AS MATERIALIZED (
    SELECT CAST(:outbox_id AS text) IS NULL
           OR EXISTS (SELECT FROM fencehold_outbox_identity AS i
                        JOIN pg_catalog.pg_class AS own ON own.oid = i.tableoid
                        JOIN pg_catalog.pg_class AS met ON met.oid = pg_catalog.to_regclass('fencehold_outbox')
                       WHERE i.outbox_id = CAST(:outbox_id AS text) AND met.relnamespace = own.relnamespace) AS is_ours
), added AS (
    INSERT INTO fencehold_outbox AS o
           (tracking_id, event_type, payload, max_retries, aggregate_id, aggregate_type, metadata, due_at, priority)
    SELECT a.tracking_id, a.event_type, CAST(a.payload AS json), a.max_retries, a.aggregate_id, a.aggregate_type,
           CAST(a.metadata AS json),
           coalesce(a.not_before, clock_timestamp()) + a.delay_s * interval '1 second', a.priority
      FROM here CROSS JOIN
           unnest(CAST(:tracking_ids AS uuid[]), CAST(:event_types AS text[]), CAST(:payloads AS text[]),
                  CAST(:max_retries AS smallint[]), CAST(:aggregate_ids AS text[]), CAST(:aggregate_types AS text[]),
                  CAST(:metadatas AS text[]), CAST(:not_befores AS timestamptz[]), CAST(:delays AS float8[]),
                  CAST(:priorities AS smallint[]))
           AS a(tracking_id, event_type, payload, max_retries, aggregate_id, aggregate_type, metadata, not_before,
                delay_s, priority)
     WHERE here.is_ours
    ON CONFLICT (tracking_id) DO NOTHING
    RETURNING o.tracking_id, o.priority
), told AS (
    SELECT pg_notify('fencehold_outbox', 'added ' || string_agg(DISTINCT CAST(priority AS text), ',')) FROM added
    HAVING count(*) > 0
)
SELECT CAST(added.tracking_id AS text) FROM added, (SELECT count(*) FROM told) AS t
UNION ALL
SELECT NULL FROM here WHERE NOT here.is_ours;
