-- name: purgeable
-- What `purge` would delete; nothing is locked, and nobody waited for.
-- In a list, texts are written as `listed` in params.py writes them.
SET NOCOUNT ON;
DECLARE @statuses nvarchar(max) = :statuses, @types nvarchar(max) = :types, @tracking_ids nvarchar(max) = :tracking_ids,
        @older_us bigint = :older_us;
DECLARE @now datetime2(7) = SYSUTCDATETIME(), @before datetime2(7);
DECLARE @some TABLE (status varchar(11) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @wanted TABLE (event_type nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @named TABLE (tracking_id uniqueidentifier NOT NULL);
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
SELECT COUNT_BIG(*) AS purgeable
  FROM fencehold_outbox AS e WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
 WHERE e.status IN ('COMPLETED', 'DEAD_LETTER') AND e.status IN (SELECT s.status FROM @some AS s)
   AND (DATALENGTH(@types) = 0 OR EXISTS (SELECT 1 FROM @wanted AS w WHERE w.event_type = e.event_type
                                             AND DATALENGTH(w.event_type) = DATALENGTH(e.event_type)))
   AND (DATALENGTH(@tracking_ids) = 0 OR EXISTS (SELECT 1 FROM @named AS n WHERE n.tracking_id = e.tracking_id))
   AND (@older_us < 0 OR COALESCE(e.processed_at, e.created_at) < @before)
OPTION (RECOMPILE);
