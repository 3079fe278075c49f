-- name: first_time
-- In the caller's own transaction; with implicit transactions the first read opens it. A second transaction with the same
-- event waits at the INSERT for the first to end, and then knows: it was the first itself, or the INSERT is a duplicate
-- (2627). With XACT_ABORT on, the duplicate would end the caller's transaction, so it is off meanwhile.
-- Nothing is written in another outbox than that of this id: the connection may lead to another database.
SET NOCOUNT ON;
DECLARE @tracking_id uniqueidentifier = :tracking_id, @consumer nvarchar(256) = :consumer, @outbox_id nvarchar(36) = :outbox_id;
DECLARE @known int, @verdict nvarchar(16) = N'known', @aborts int = @@OPTIONS & 16384;
SET XACT_ABORT OFF;
SELECT @known = COUNT(*) FROM fencehold_outbox_consumed AS m WITH (READCOMMITTEDLOCK)
 WHERE m.tracking_id = @tracking_id AND m.consumer_id = @consumer;
IF @@TRANCOUNT = 0 SET @verdict = N'outside';
ELSE IF NOT EXISTS (SELECT 1 FROM fencehold_outbox_identity AS d WITH (READCOMMITTEDLOCK) WHERE d.outbox_id = @outbox_id)
    SET @verdict = N'elsewhere';
ELSE IF @known = 0
BEGIN
    BEGIN TRY
        INSERT INTO fencehold_outbox_consumed (tracking_id, consumer_id) VALUES (@tracking_id, @consumer);
        SET @verdict = N'first';
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() NOT IN (2601, 2627) OR XACT_STATE() = -1
        BEGIN
            IF @aborts <> 0 SET XACT_ABORT ON;
            THROW;
        END
    END CATCH
END
IF @aborts <> 0 SET XACT_ABORT ON;
SELECT @verdict AS verdict;
