-- name: reaped
-- only: sqlite, because there a statement writes to one table only.
-- A run is recorded also when it found nothing: that it runs at all is what is looked at.
INSERT INTO fencehold_outbox_reaper (one, ran_at, runs, recovered)
VALUES (1, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 1, :recovered)
ON CONFLICT (one) DO UPDATE
   SET ran_at = excluded.ran_at, runs = runs + 1, recovered = recovered + excluded.recovered;
