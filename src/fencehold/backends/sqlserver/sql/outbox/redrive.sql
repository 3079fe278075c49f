-- name: redrive
-- rules: DEAD_LETTER.redrive.always FAILED.redrive.always
-- The k-th becomes due after k * spread: a thousand dead letters do not come back as one wave. They are chosen without a
-- lock that lasts, passing over what others have locked; the UPDATE asks for the status once more. Each status repeats the
-- condition of an index of its own: what is finished is not read.
-- In a list, texts are written as `listed` in params.py writes them.
SET NOCOUNT ON;
DECLARE @statuses nvarchar(max) = :statuses, @types nvarchar(max) = :types, @tracking_ids nvarchar(max) = :tracking_ids,
        @older_us bigint = :older_us, @limit int = :limit, @spread_us bigint = :spread_us,
        @root_cause nvarchar(max) = :root_cause, @dry_run int = :dry_run;
DECLARE @now datetime2(7) = SYSUTCDATETIME(), @before datetime2(7);
DECLARE @some TABLE (status varchar(11) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @wanted TABLE (event_type nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @named TABLE (tracking_id uniqueidentifier NOT NULL);
DECLARE @chosen TABLE (id bigint NOT NULL, tracking_id uniqueidentifier NOT NULL, after_us bigint NOT NULL);
DECLARE @revived TABLE (id bigint NOT NULL, tracking_id uniqueidentifier NOT NULL);
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
BEGIN TRANSACTION;
INSERT INTO @chosen (id, tracking_id, after_us)
SELECT TOP (@limit) e.id, e.tracking_id, (ROW_NUMBER() OVER (ORDER BY e.id) - 1) * @spread_us
  FROM (SELECT d.id, d.tracking_id, d.status, d.event_type, d.processed_at, d.created_at
          FROM fencehold_outbox AS d WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
         WHERE d.status = 'DEAD_LETTER'
         UNION ALL
        SELECT f.id, f.tracking_id, f.status, f.event_type, f.processed_at, f.created_at
          FROM fencehold_outbox AS f WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
         WHERE f.status IN ('PENDING', 'FAILED') AND f.status = 'FAILED') AS e
 WHERE (DATALENGTH(@statuses) = 0 OR e.status IN (SELECT s.status FROM @some AS s))
   AND (DATALENGTH(@types) = 0 OR EXISTS (SELECT 1 FROM @wanted AS w WHERE w.event_type = e.event_type
                                             AND DATALENGTH(w.event_type) = DATALENGTH(e.event_type)))
   AND (DATALENGTH(@tracking_ids) = 0 OR EXISTS (SELECT 1 FROM @named AS n WHERE n.tracking_id = e.tracking_id))
   AND (@older_us < 0 OR COALESCE(e.processed_at, e.created_at) < @before)
 ORDER BY e.id OPTION (RECOMPILE);
SET @now = SYSUTCDATETIME();
IF @dry_run = 1
    INSERT INTO @revived (id, tracking_id) SELECT c.id, c.tracking_id FROM @chosen AS c;
ELSE
    UPDATE fencehold_outbox WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
       SET status = 'PENDING', retry_count = 0, recoveries = NULL, last_error = NULL, processed_at = NULL,
           root_cause = CASE WHEN DATALENGTH(@root_cause) > 0 THEN @root_cause END,
           due_at = DATEADD(microsecond, CAST(c.after_us % 1000000 AS int), DATEADD(second, CAST(c.after_us / 1000000 AS int), @now))
    OUTPUT inserted.id, inserted.tracking_id INTO @revived (id, tracking_id)
      FROM @chosen AS c
     WHERE fencehold_outbox.id = c.id AND fencehold_outbox.status IN ('DEAD_LETTER', 'FAILED')
    OPTION (LOOP JOIN);
COMMIT TRANSACTION;
SELECT LOWER(CONVERT(nvarchar(36), r.tracking_id)) AS tracking_id FROM @revived AS r ORDER BY r.id;
