-- name: horizon
-- Where a rebuild begins. Every write below @active was over, committed or undone, before the next statement began: the
-- rebuild sees it. Whatever is written with @active or above is left to the refreshes after it.
SET NOCOUNT ON;
DECLARE @active binary(8) = MIN_ACTIVE_ROWVERSION();
SELECT @active AS active, newest.last_modified_at, newest.intent_id
  FROM (SELECT 1 AS one) AS always
  LEFT JOIN (SELECT TOP (1) last_modified_at, intent_id FROM submission_intents
              ORDER BY last_modified_at DESC, intent_id DESC) AS newest ON 1 = 1;
