-- name: release
-- rules: live.release.is_holder
-- Expires the row and keeps it: the next epoch counts on from this one. Two equal times say that it was given back.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(:names::text[], :holders::text[], :epochs::bigint[])
             WITH ORDINALITY AS a(lease_name, holder_id, lease_epoch, place)
), mine AS MATERIALIZED (
    SELECT l.lease_name, a.place FROM fencehold_leases AS l
      JOIN asked AS a ON l.lease_name = a.lease_name AND l.holder_id = a.holder_id AND l.lease_epoch = a.lease_epoch
     WHERE l.expires_at > clock_timestamp()
       FOR NO KEY UPDATE OF l SKIP LOCKED
), released AS (
    UPDATE fencehold_leases AS l
       SET renewed_at = c.now, expires_at = c.now
      FROM (SELECT lease_name, place, clock_timestamp() AS now FROM mine) AS c
     WHERE l.lease_name = c.lease_name AND l.expires_at > c.now
    RETURNING c.place, c.now, l.*
), told AS (
    SELECT pg_notify('fencehold_leases', 'released ' || lease_name) FROM released
)
SELECT CASE WHEN r.place IS NOT NULL THEN 'yes'
            WHEN s.lease_name IS NULL THEN 'absent'
            WHEN s.expires_at <= clock_timestamp() THEN 'lapsed'
            WHEN s.holder_id <> a.holder_id OR s.lease_epoch <> a.lease_epoch THEN 'held_by_another'
            ELSE 'busy' END AS verdict,
       a.lease_name, coalesce(r.holder_id, s.holder_id), coalesce(r.lease_epoch, s.lease_epoch),
       coalesce(r.acquired_at, s.acquired_at), coalesce(r.renewed_at, s.renewed_at),
       coalesce(r.expires_at, s.expires_at),
       extract(epoch FROM coalesce(r.expires_at, s.expires_at) - coalesce(r.now, clock_timestamp()))::float8,
       coalesce(r.step_down_epoch, s.step_down_epoch) = coalesce(r.lease_epoch, s.lease_epoch),
       coalesce(r.acquire_nonce, s.acquire_nonce), coalesce(r.lease_id, s.lease_id)
  FROM (SELECT count(*) FROM told) AS t
 CROSS JOIN asked AS a
  -- By key, not by place: a key that was asked for twice is changed once and answered twice.
  LEFT JOIN released AS r
    ON r.lease_name = a.lease_name AND r.holder_id = a.holder_id AND r.lease_epoch = a.lease_epoch
  LEFT JOIN fencehold_leases AS s ON s.lease_name = a.lease_name
 ORDER BY a.place;
