-- What no reader can make sense of is refused: the CHECK of a time sees its form only, and takes 30 February, 24 o'clock and
-- the year 0, and SQLite adds no CHECK to a table. Claims and completions write none of these columns, and pay nothing.
-- Rows that were there before.
UPDATE fencehold_outbox
   SET last_error = coalesce(last_error, 'init: due_at was ' || due_at || ', which is no time'),
       due_at = CASE WHEN strftime('%Y-%m-%dT%H:%M:%fZ', due_at, '+0 days') BETWEEN '0002' AND '9999'
                     THEN strftime('%Y-%m-%dT%H:%M:%fZ', due_at, '+0 days')
                     ELSE strftime('%Y-%m-%dT%H:%M:%fZ', 'now') END
 WHERE status IN ('PENDING', 'FAILED')
   AND NOT (due_at BETWEEN '0002' AND '9999'
            AND date(substr(due_at, 1, 10), '+0 days') IS substr(due_at, 1, 10)
            AND substr(due_at, 12) GLOB '[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9]Z'
            AND substr(due_at, 12, 2) < '24');

-- Rows that were there before.
UPDATE fencehold_outbox
   SET last_error = coalesce(last_error, 'init: created_at was ' || created_at || ', which is no time'),
       created_at = CASE WHEN strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '+0 days') BETWEEN '0002' AND '9999'
                     THEN strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '+0 days')
                     ELSE strftime('%Y-%m-%dT%H:%M:%fZ', 'now') END
 WHERE status IN ('PENDING', 'FAILED')
   AND NOT (created_at BETWEEN '0002' AND '9999'
            AND date(substr(created_at, 1, 10), '+0 days') IS substr(created_at, 1, 10)
            AND substr(created_at, 12) GLOB '[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9]Z'
            AND substr(created_at, 12, 2) < '24');

-- Of numbers that are none SQLite makes what it can.
UPDATE fencehold_outbox
   SET priority = CAST(priority AS INTEGER), retry_count = CAST(retry_count AS INTEGER),
       max_retries = CAST(max_retries AS INTEGER)
 WHERE status IN ('PENDING', 'FAILED')
   AND NOT (typeof(priority) = 'integer' AND typeof(retry_count) = 'integer' AND typeof(max_retries) = 'integer');

CREATE TRIGGER fencehold_outbox_readable_insert BEFORE INSERT ON fencehold_outbox
WHEN NOT (NEW.created_at BETWEEN '0002' AND '9999'
          AND date(substr(NEW.created_at, 1, 10), '+0 days') IS substr(NEW.created_at, 1, 10)
          AND substr(NEW.created_at, 12) GLOB '[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9]Z'
          AND substr(NEW.created_at, 12, 2) < '24'
          AND NEW.due_at BETWEEN '0002' AND '9999'
          AND date(substr(NEW.due_at, 1, 10), '+0 days') IS substr(NEW.due_at, 1, 10)
          AND substr(NEW.due_at, 12) GLOB '[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9]Z'
          AND substr(NEW.due_at, 12, 2) < '24'
          AND typeof(NEW.priority) = 'integer' AND typeof(NEW.retry_count) = 'integer'
          AND typeof(NEW.max_retries) = 'integer' AND typeof(NEW.recoveries) IN ('integer', 'null'))
BEGIN
    SELECT RAISE(ABORT, 'created_at and due_at must be UTC times such as 2026-01-31T23:59:59.000Z, and priority, retry_count, max_retries and recoveries whole numbers');
END;

CREATE TRIGGER fencehold_outbox_readable_update
BEFORE UPDATE OF created_at, due_at, priority, retry_count, max_retries, recoveries ON fencehold_outbox
WHEN NOT (NEW.created_at BETWEEN '0002' AND '9999'
          AND date(substr(NEW.created_at, 1, 10), '+0 days') IS substr(NEW.created_at, 1, 10)
          AND substr(NEW.created_at, 12) GLOB '[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9]Z'
          AND substr(NEW.created_at, 12, 2) < '24'
          AND NEW.due_at BETWEEN '0002' AND '9999'
          AND date(substr(NEW.due_at, 1, 10), '+0 days') IS substr(NEW.due_at, 1, 10)
          AND substr(NEW.due_at, 12) GLOB '[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9]Z'
          AND substr(NEW.due_at, 12, 2) < '24'
          AND typeof(NEW.priority) = 'integer' AND typeof(NEW.retry_count) = 'integer'
          AND typeof(NEW.max_retries) = 'integer' AND typeof(NEW.recoveries) IN ('integer', 'null'))
BEGIN
    SELECT RAISE(ABORT, 'created_at and due_at must be UTC times such as 2026-01-31T23:59:59.000Z, and priority, retry_count, max_retries and recoveries whole numbers');
END;
