-- name: durability
-- only: postgres and sqlserver, because our own connections to a SQLite file set what they need.
-- Settings under which a grant that was answered can be lost, and its epoch be given out again; no row when there are none.
SELECT 'fsync is off: a crash of the machine can lose what was committed' AS risk, 'Turn fsync on.' AS remedy
 WHERE current_setting('fsync') = 'off'
UNION ALL
SELECT 'full_page_writes is off: a crash of the machine can leave pages half written', 'Turn full_page_writes on.'
 WHERE current_setting('full_page_writes') = 'off'
UNION ALL
SELECT 'the table ' || c.oid::regclass || ' is UNLOGGED: after a crash it is empty', 'ALTER TABLE ... SET LOGGED.'
  FROM pg_class AS c WHERE c.oid = to_regclass('fencehold_leases') AND c.relpersistence = 'u';
