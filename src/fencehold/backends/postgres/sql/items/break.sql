-- name: break
-- rules: absent.break.always free.break.always live.break.is_own_lease
-- Keys come in the order of their ids, so that two who break the same ones wait for each other in one direction only.
-- The answer is what was refused, and the place of its key; token 0 means whatever lease this holder has.
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', :patience, true)
), asked AS MATERIALIZED (
    SELECT a.* FROM patience, unnest(:ids::text[], :holders::text[], :tokens::bigint[])
                    WITH ORDINALITY AS a(id, holder_id, token, place)
), locked AS MATERIALIZED (
    SELECT i.id FROM asked AS a JOIN fencehold_items AS i ON i.kind = :kind AND i.id = a.id
     WHERE i.holder_id = a.holder_id AND a.token IN (0, i.token)
       FOR NO KEY UPDATE OF i
), freed AS (
    UPDATE fencehold_items AS i
       SET holder_id = NULL, leased_at = NULL, lease_ms = NULL, expires_at = NULL
      FROM (SELECT id, clock_timestamp() AS now FROM locked) AS c
     WHERE i.kind = :kind AND i.id = c.id AND i.expires_at > c.now
)
SELECT i.id, i.state, i.state_timestamp, i.document::text, i.token, i.holder_id, i.leased_at, i.lease_ms, i.expires_at,
       c.now, a.place
  FROM (SELECT clock_timestamp() AS now) AS c, asked AS a JOIN fencehold_items AS i ON i.kind = :kind AND i.id = a.id
 WHERE i.expires_at > c.now AND NOT (i.holder_id = a.holder_id AND a.token IN (0, i.token));
