-- name: horizon
-- Where a rebuild begins: whatever this snapshot does not show is left to the refreshes after it.
SELECT CAST(pg_current_snapshot() AS text) AS snapshot, newest.last_modified_at, newest.intent_id
  FROM (SELECT) AS always
  LEFT JOIN (SELECT last_modified_at, intent_id FROM submission_intents
              ORDER BY last_modified_at DESC, intent_id DESC LIMIT 1) AS newest ON true;
