-- name: ask_step_down
-- rules: live.ask_step_down.is_epoch
-- The holder reads the mark with its next renewal, for which the notification wakes it.
WITH live AS MATERIALIZED (
    SELECT lease_name FROM fencehold_leases
     WHERE lease_name = :name AND lease_epoch = :epoch AND expires_at > clock_timestamp()
       FOR NO KEY UPDATE SKIP LOCKED
), marked AS (
    UPDATE fencehold_leases AS l
       SET step_down_epoch = l.lease_epoch
      FROM (SELECT lease_name, clock_timestamp() AS now FROM live) AS c
     WHERE l.lease_name = c.lease_name AND l.lease_epoch = :epoch AND l.expires_at > c.now
    RETURNING c.now, l.*
), told AS (
    SELECT pg_notify('fencehold_leases', 'asked ' || lease_name) FROM marked
)
SELECT CASE WHEN m.lease_name IS NOT NULL THEN 'yes'
            WHEN s.expires_at <= clock_timestamp() THEN 'lapsed'
            WHEN s.lease_epoch <> :epoch THEN 'held_by_another'
            ELSE 'busy' END AS verdict,
       s.lease_name, s.holder_id, s.lease_epoch, s.acquired_at, s.renewed_at, s.expires_at,
       extract(epoch FROM s.expires_at - coalesce(m.now, clock_timestamp()))::float8 AS remaining_s,
       coalesce(m.step_down_epoch, s.step_down_epoch) = s.lease_epoch AS step_down, s.acquire_nonce, s.lease_id
  FROM (SELECT count(*) FROM told) AS t
 CROSS JOIN fencehold_leases AS s
  LEFT JOIN marked AS m ON m.lease_name = s.lease_name
 WHERE s.lease_name = :name;
