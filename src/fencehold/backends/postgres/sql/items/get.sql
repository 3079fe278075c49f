-- name: get
SELECT i.id, i.state, i.state_timestamp, i.document::text, i.token, i.holder_id, i.leased_at, i.lease_ms, i.expires_at,
       clock_timestamp() AS now
  FROM unnest(:ids::text[]) AS a(id)
  JOIN fencehold_items AS i ON i.kind = :kind AND i.id = a.id;
