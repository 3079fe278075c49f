-- name: find
-- Events that are named are each sought by their id, and waited for if need be: what is there is found. A list waits for
-- nobody (READPAST): without row versions it would stop at the newest event, whose transaction may be open; what is being
-- changed this moment is left out.
-- In a list, texts are written as `listed` in params.py writes them.
SET NOCOUNT ON;
DECLARE @statuses nvarchar(max) = :statuses, @types nvarchar(max) = :types, @tracking_ids nvarchar(max) = :tracking_ids,
        @older_us bigint = :older_us, @limit int = :limit;
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
IF DATALENGTH(@tracking_ids) > 0
    SELECT TOP (@limit) e.id, LOWER(CONVERT(nvarchar(36), e.tracking_id)) AS tracking_id, e.event_type, e.aggregate_id, e.aggregate_type,
           e.payload, e.metadata, e.status, e.priority, e.created_at, e.due_at, e.processed_at, e.retry_count, e.max_retries,
           e.locked_until, e.lock_token, e.last_error, e.root_cause, @now AS now
      FROM @named AS n INNER LOOP JOIN fencehold_outbox AS e ON e.tracking_id = n.tracking_id
     WHERE (DATALENGTH(@statuses) = 0 OR e.status IN (SELECT s.status FROM @some AS s))
       AND (DATALENGTH(@types) = 0 OR EXISTS (SELECT 1 FROM @wanted AS w WHERE w.event_type = e.event_type
                                                 AND DATALENGTH(w.event_type) = DATALENGTH(e.event_type)))
       AND (@older_us < 0 OR COALESCE(e.processed_at, e.created_at) < @before)
     ORDER BY e.id DESC;
ELSE
    SELECT TOP (@limit) e.id, LOWER(CONVERT(nvarchar(36), e.tracking_id)) AS tracking_id, e.event_type, e.aggregate_id, e.aggregate_type,
           e.payload, e.metadata, e.status, e.priority, e.created_at, e.due_at, e.processed_at, e.retry_count, e.max_retries,
           e.locked_until, e.lock_token, e.last_error, e.root_cause, @now AS now
      FROM fencehold_outbox AS e WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
     WHERE (DATALENGTH(@statuses) = 0 OR e.status IN (SELECT s.status FROM @some AS s))
       AND (DATALENGTH(@types) = 0 OR EXISTS (SELECT 1 FROM @wanted AS w WHERE w.event_type = e.event_type
                                                 AND DATALENGTH(w.event_type) = DATALENGTH(e.event_type)))
       AND (@older_us < 0 OR COALESCE(e.processed_at, e.created_at) < @before)
     ORDER BY e.id DESC OPTION (RECOMPILE);
