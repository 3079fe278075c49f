-- name: pending
-- One page of what is to be done, each row with the clock. Without any there is one row, of the clock alone.
SET NOCOUNT ON;
DECLARE @after_at datetime2(7) = :after_at, @after_id nvarchar(400) = :after_id, @limit int = :limit;
SELECT page.intent_id, page.next_attempt_at, page.last_modified_at, page.gateway_url, SYSUTCDATETIME() AS now
  FROM (SELECT 1 AS one) AS always
  LEFT JOIN (SELECT TOP (@limit) intent_id, next_attempt_at, last_modified_at, gateway_url
               FROM submission_intents
              WHERE next_attempt_at IS NOT NULL
                AND next_attempt_at >= @after_at AND (next_attempt_at > @after_at OR intent_id > @after_id)
              ORDER BY next_attempt_at, intent_id) AS page ON 1 = 1
 ORDER BY page.next_attempt_at, page.intent_id;
