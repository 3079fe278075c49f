-- name: redrive
-- rules: DEAD_LETTER.redrive.always FAILED.redrive.always
-- The k-th becomes due after k * spread seconds: a thousand dead letters do not come back as one wave.
UPDATE fencehold_outbox
   SET status = 'PENDING', retry_count = 0, recoveries = NULL, last_error = NULL, processed_at = NULL,
       due_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', printf('+%.3f seconds', chosen.place * :spread)),
       root_cause = nullif(:root_cause, '')
  FROM (SELECT id AS chosen_id, row_number() OVER (ORDER BY id) - 1 AS place
          FROM fencehold_outbox
         WHERE status IN ('DEAD_LETTER', 'FAILED')
           AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
           AND (:types IS NULL OR event_type IN (SELECT value FROM json_each(:types)))
           AND (:tracking_ids IS NULL OR tracking_id IN (SELECT value FROM json_each(:tracking_ids)))
           AND (:older_than IS NULL
                OR coalesce(processed_at, created_at) < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :older_than))
         ORDER BY id LIMIT :limit) AS chosen
 WHERE id = chosen.chosen_id
RETURNING id, tracking_id;
