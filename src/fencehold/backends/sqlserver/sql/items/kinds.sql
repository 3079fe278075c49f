-- name: kinds
-- One step of the index per kind, however many items there are.
SET NOCOUNT ON;
DECLARE @kind nvarchar(256);
DECLARE @found TABLE (kind nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL);
SELECT @kind = MIN(kind) FROM fencehold_items;
WHILE @kind IS NOT NULL
BEGIN
    INSERT INTO @found (kind) VALUES (@kind);
    SELECT @kind = MIN(kind) FROM fencehold_items WHERE kind > @kind;
END
SELECT kind FROM @found;
