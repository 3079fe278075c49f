-- name: horizon
-- Where a rebuild begins. Every write below @active was over, committed or undone, before the next statement began: the
-- rebuild sees it. Whatever is written with @active or above is left to the refreshes after it.
SET NOCOUNT ON;
DECLARE @active binary(8) = MIN_ACTIVE_ROWVERSION();
DECLARE @modified_at datetime2(7), @id nvarchar(400);
SELECT TOP (1) @modified_at = last_modified_at, @id = intent_id
  FROM submission_intents
 ORDER BY last_modified_at DESC, intent_id DESC;
SELECT @active AS active, @modified_at AS last_modified_at, @id AS intent_id, CONVERT(nvarchar(27), @modified_at, 126) AS place;
