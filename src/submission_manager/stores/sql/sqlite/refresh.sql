-- name: refresh
-- In the order of the commits, which is that of spec 000's cursor as long as the clock does not step back.
SELECT intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at,
       CASE WHEN policy = 'deadline' THEN max_acceptance_seconds END AS deadline_s, modified_seq
  FROM submission_intents
 WHERE modified_seq > :seen
 ORDER BY modified_seq
 LIMIT :limit;
