-- name: durability
-- only: postgres and sqlserver, because our own connections to a SQLite file set what they need.
-- Settings under which a grant that was answered can be lost, and its epoch be given out again; no row when there are none.
-- A transaction cannot ask for more where the database forces less.
SELECT N'DELAYED_DURABILITY is FORCED: commits are answered before they are on disk, and a crash can lose them' AS risk,
       N'ALTER DATABASE ... SET DELAYED_DURABILITY = DISABLED (or ALLOWED).' AS remedy
  FROM sys.databases WHERE database_id = DB_ID() AND delayed_durability_desc = N'FORCED';
