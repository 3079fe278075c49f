-- name: add
-- One INSERT, whole or not at all: on our own connection or, `within`, in the transaction of the caller, whose end is the
-- caller's. With implicit transactions the first read opens that one; where none is open then, nothing is written.
-- A tracking id that is known already is left alone. One that another session has added and not committed yet makes the
-- INSERT wait, and then fail as a duplicate (2627): it is done again, and by then the other's is known. With XACT_ABORT
-- that failure would end the caller's transaction, so it is off meanwhile. Only ids that the caller chose are looked for,
-- each by itself: no plan reads, and waits for, other rows.
-- `within`, nothing is written in another outbox than that of this id: the caller's connection may lead to another database.
-- Payloads and metadata come in a list of their own, two places for each event: not every server takes long texts out of
-- a list of rows. In a list, texts are written as `listed` in params.py writes them.
SET NOCOUNT ON;
DECLARE @events nvarchar(max) = :events, @texts nvarchar(max) = :texts, @within int = :within, @outbox_id nvarchar(36) = :outbox_id;
DECLARE @now datetime2(7) = SYSUTCDATETIME(), @first bigint, @tries int = 0, @verdict nvarchar(16) = N'asked';
DECLARE @aborts int = @@OPTIONS & 16384;
DECLARE @text TABLE (place int NOT NULL PRIMARY KEY, body nvarchar(max) NULL);
DECLARE @added TABLE (tracking_id uniqueidentifier NOT NULL);
SET XACT_ABORT OFF;
SELECT @first = MAX(e.id) FROM fencehold_outbox AS e WITH (READCOMMITTEDLOCK) WHERE e.id = 0;
IF @within = 1 AND @@TRANCOUNT = 0 SET @verdict = N'outside';
ELSE IF @within = 1 AND NOT EXISTS (SELECT 1 FROM fencehold_outbox_identity AS d WITH (READCOMMITTEDLOCK) WHERE d.outbox_id = @outbox_id)
    SET @verdict = N'elsewhere';
IF @verdict = N'asked'
    INSERT INTO @text (place, body)
    SELECT CAST(t.[key] AS int),
           REPLACE(REPLACE(REPLACE(t.[value] COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
      FROM OPENJSON(@texts) AS t;
WHILE @verdict = N'asked'
BEGIN
    BEGIN TRY
        INSERT INTO fencehold_outbox
               (tracking_id, event_type, payload, max_retries, aggregate_id, aggregate_type, metadata, priority, created_at, due_at)
        OUTPUT inserted.tracking_id INTO @added (tracking_id)
        SELECT a.tracking_id,
               REPLACE(REPLACE(REPLACE(a.event_type COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%'),
               p.body, a.max_retries,
               REPLACE(REPLACE(REPLACE(a.aggregate_id COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%'),
               REPLACE(REPLACE(REPLACE(a.aggregate_type COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%'),
               m.body, a.priority, @now,
               COALESCE(a.not_before, DATEADD(microsecond, CAST(a.delay_us % 1000000 AS int),
                                              DATEADD(second, CAST(a.delay_us / 1000000 AS int), @now)))
          FROM OPENJSON(@events)
               WITH (place int '$.place', tracking_id uniqueidentifier '$.tracking_id', event_type nvarchar(768) '$.event_type',
                     max_retries smallint '$.max_retries',
                     aggregate_id nvarchar(1536) '$.aggregate_id', aggregate_type nvarchar(1536) '$.aggregate_type',
                     priority smallint '$.priority', not_before datetime2(7) '$.not_before',
                     delay_us bigint '$.delay_us', is_chosen int '$.is_chosen') AS a
         INNER JOIN @text AS p ON p.place = 2 * a.place
          LEFT JOIN @text AS m ON m.place = 2 * a.place + 1
         WHERE a.is_chosen = 0
            OR NOT EXISTS (SELECT 1 FROM fencehold_outbox AS e WITH (FORCESEEK) WHERE e.tracking_id = a.tracking_id)
         ORDER BY a.place;
        SET @verdict = N'added';
    END TRY
    BEGIN CATCH
        SET @tries = @tries + 1;
        IF ERROR_NUMBER() NOT IN (2601, 2627) OR XACT_STATE() = -1 OR @tries = 5
        BEGIN
            IF @aborts <> 0 SET XACT_ABORT ON;
            THROW;
        END
    END CATCH
END
IF @aborts <> 0 SET XACT_ABORT ON;
SELECT @verdict AS verdict, LOWER(CONVERT(nvarchar(36), tracking_id)) AS tracking_id FROM @added
UNION ALL
SELECT @verdict, NULL WHERE @verdict IN (N'outside', N'elsewhere');
