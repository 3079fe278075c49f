-- name: refresh
-- Spec 000's cursor (fresh), and what it would miss (late): rows at or before the cursor that are written with @seen or
-- above. In this order:
-- 1. @active is asked for before anything is read: a write below it is over when the reading begins, so this page, or an
--    earlier one, shows it; a write that this page cannot show yet is at @active or above, and the next round asks for it.
-- 2. late: from where the round before stood before its own reading. Rows it has read already may come again, which
--    changes nothing; READPAST has no place here, for a lock that ends in a rollback would hide a row for ever.
-- 3. fresh: beyond the cursor, and beyond what this round has read.
-- The order of ids is the server's own, so it says itself which rows are fresh. The first row is the clock's, with
-- @active. The indexes are named because a plan that is right for many late rows reads all there ever was for none.
-- docs/decisions/0012 has the argument.
SET NOCOUNT ON;
DECLARE @seen binary(8) = :seen, @floor_at datetime2(7) = :floor_at, @floor_id nvarchar(400) = :floor_id,
    @after_at datetime2(7) = :after_at, @after_id nvarchar(400) = :after_id, @from_at datetime2(7) = :from_at,
    @from_id nvarchar(400) = :from_id, @limit int = :limit;
DECLARE @active binary(8) = MIN_ACTIVE_ROWVERSION();
DECLARE @page TABLE (is_row bit NOT NULL DEFAULT 0, is_fresh bit, intent_id nvarchar(400) COLLATE Latin1_General_BIN2,
    next_attempt_at datetime2(7), last_modified_at datetime2(7), gateway_url nvarchar(max), submission_target nvarchar(max),
    created_at datetime2(7), deadline_s int);
INSERT INTO @page DEFAULT VALUES;
INSERT INTO @page (is_row, is_fresh, intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at,
                   deadline_s)
SELECT TOP (@limit) 1, 0, intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at,
       CASE WHEN policy = N'deadline' THEN max_acceptance_seconds END
  FROM submission_intents WITH (INDEX (submission_intents_modified_version))
 WHERE modified_version >= @seen
   AND last_modified_at >= @after_at AND (last_modified_at > @after_at OR intent_id > @after_id)
   AND last_modified_at <= @floor_at AND (last_modified_at < @floor_at OR intent_id <= @floor_id)
 ORDER BY last_modified_at, intent_id;
INSERT INTO @page (is_row, is_fresh, intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at,
                   deadline_s)
SELECT TOP (@limit) 1, 1, intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at,
       CASE WHEN policy = N'deadline' THEN max_acceptance_seconds END
  FROM submission_intents WITH (INDEX (submission_intents_modified))
 WHERE last_modified_at >= @from_at AND (last_modified_at > @from_at OR intent_id > @from_id)
 ORDER BY last_modified_at, intent_id;
SELECT TOP (@limit + 1) intent_id, next_attempt_at, last_modified_at, gateway_url, submission_target, created_at, deadline_s,
       SYSUTCDATETIME() AS now, CONVERT(nvarchar(27), last_modified_at, 126) AS place, is_fresh, @active AS active
  FROM @page
 ORDER BY is_row, last_modified_at, intent_id;
