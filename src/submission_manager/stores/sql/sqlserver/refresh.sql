-- name: refresh
-- Spec 000's cursor (fresh), and what it would miss (late): rows at or before the cursor that are written with @seen or
-- above. In this order:
-- 1. @active is asked for before anything is read: a write below it is over when the reading begins, so this page, or an
--    earlier one, shows it; a write that this page cannot show yet is at @active or above, and the next round asks for it.
-- 2. late: from where the round before stood before its own reading. Rows it has read already may come again, which
--    changes nothing; READPAST has no place here, for a lock that ends in a rollback would hide a row for ever.
-- 3. fresh: beyond the cursor, and beyond what this round has read.
-- The order of ids is the server's own, so it says itself which rows are fresh. Without any there is one row, of the
-- clock and @active alone. docs/decisions/0012 has the argument.
SET NOCOUNT ON;
DECLARE @seen binary(8) = :seen, @floor_at datetime2(7) = :floor_at, @floor_id nvarchar(400) = :floor_id,
    @after_at datetime2(7) = :after_at, @after_id nvarchar(400) = :after_id, @limit int = :limit;
DECLARE @active binary(8) = MIN_ACTIVE_ROWVERSION();
SELECT page.intent_id, page.next_attempt_at, page.last_modified_at, page.gateway_url, SYSUTCDATETIME() AS now, page.is_fresh,
       @active AS active
  FROM (SELECT 1 AS one) AS always
  LEFT JOIN (SELECT TOP (@limit) changed.intent_id, changed.next_attempt_at, changed.last_modified_at, changed.gateway_url,
                    changed.is_fresh
               FROM (SELECT late.intent_id, late.next_attempt_at, late.last_modified_at, late.gateway_url, 0 AS is_fresh
                       FROM (SELECT TOP (@limit) intent_id, next_attempt_at, last_modified_at, gateway_url
                               FROM submission_intents
                              WHERE modified_version >= @seen
                                AND last_modified_at >= @after_at
                                AND (last_modified_at > @after_at OR intent_id > @after_id)
                                AND last_modified_at <= @floor_at
                                AND (last_modified_at < @floor_at OR intent_id <= @floor_id)
                              ORDER BY last_modified_at, intent_id) AS late
                     UNION ALL
                     SELECT fresh.intent_id, fresh.next_attempt_at, fresh.last_modified_at, fresh.gateway_url, 1 AS is_fresh
                       FROM (SELECT TOP (@limit) intent_id, next_attempt_at, last_modified_at, gateway_url
                               FROM submission_intents
                              WHERE last_modified_at >= @after_at
                                AND (last_modified_at > @after_at OR intent_id > @after_id)
                                AND last_modified_at >= @floor_at
                                AND (last_modified_at > @floor_at OR intent_id > @floor_id)
                              ORDER BY last_modified_at, intent_id) AS fresh) AS changed
              ORDER BY changed.last_modified_at, changed.intent_id) AS page ON 1 = 1
 ORDER BY page.last_modified_at, page.intent_id;
