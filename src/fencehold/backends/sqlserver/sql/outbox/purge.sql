-- name: purge
-- Only finished events; a dead letter only when it is named. They are chosen without a lock that lasts, passing over what
-- others have locked; the DELETE asks for the status once more. Nobody can be given them again, so who met them is
-- forgotten too.
-- In a list, texts are written as `listed` in params.py writes them.
SET NOCOUNT ON;
DECLARE @statuses nvarchar(max) = :statuses, @types nvarchar(max) = :types, @tracking_ids nvarchar(max) = :tracking_ids,
        @older_us bigint = :older_us, @limit int = :limit;
DECLARE @now datetime2(7) = SYSUTCDATETIME(), @before datetime2(7);
DECLARE @some TABLE (status varchar(11) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @wanted TABLE (event_type nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @named TABLE (tracking_id uniqueidentifier NOT NULL);
DECLARE @chosen TABLE (id bigint NOT NULL);
DECLARE @gone TABLE (tracking_id uniqueidentifier NOT NULL);
IF DATALENGTH(@statuses) > 0
    INSERT INTO @some (status) SELECT s.status FROM OPENJSON(@statuses) WITH (status varchar(11) '$.status') AS s;
IF DATALENGTH(@types) > 0
    INSERT INTO @wanted (event_type)
    SELECT REPLACE(REPLACE(REPLACE(w.event_type COLLATE Latin1_General_BIN2, N'%22', NCHAR(34)), N'%5C', NCHAR(92)), N'%25', N'%')
      FROM OPENJSON(@types) WITH (event_type nvarchar(768) '$.event_type') AS w;
IF DATALENGTH(@tracking_ids) > 0
    INSERT INTO @named (tracking_id)
    SELECT n.tracking_id FROM OPENJSON(@tracking_ids) WITH (tracking_id uniqueidentifier '$.tracking_id') AS n;
IF @older_us >= 0
    SET @before = DATEADD(microsecond, -CAST(@older_us % 60000000 AS int), DATEADD(minute, -CAST(@older_us / 60000000 AS int), @now));
IF DATALENGTH(@statuses) = 0
    INSERT INTO @some (status) VALUES ('COMPLETED');
BEGIN TRANSACTION;
INSERT INTO @chosen (id)
SELECT TOP (@limit) e.id
  FROM fencehold_outbox AS e WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
 WHERE e.status IN ('COMPLETED', 'DEAD_LETTER') AND e.status IN (SELECT s.status FROM @some AS s)
   AND (DATALENGTH(@types) = 0 OR EXISTS (SELECT 1 FROM @wanted AS w WHERE w.event_type = e.event_type
                                             AND DATALENGTH(w.event_type) = DATALENGTH(e.event_type)))
   AND (DATALENGTH(@tracking_ids) = 0 OR EXISTS (SELECT 1 FROM @named AS n WHERE n.tracking_id = e.tracking_id))
   AND (@older_us < 0 OR COALESCE(e.processed_at, e.created_at) < @before)
 ORDER BY e.id OPTION (RECOMPILE);
DELETE FROM fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
OUTPUT deleted.tracking_id INTO @gone (tracking_id)
 WHERE id IN (SELECT c.id FROM @chosen AS c)
   AND status IN ('COMPLETED', 'DEAD_LETTER') AND status IN (SELECT s.status FROM @some AS s)
OPTION (LOOP JOIN);
DELETE FROM fencehold_outbox_consumed WITH (ROWLOCK) WHERE tracking_id IN (SELECT g.tracking_id FROM @gone AS g) OPTION (LOOP JOIN);
COMMIT TRANSACTION;
SELECT COUNT_BIG(*) AS gone FROM @gone;
