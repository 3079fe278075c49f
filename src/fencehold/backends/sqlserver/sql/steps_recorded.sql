-- name: steps_recorded
-- only: postgres and sqlserver, because SQLite's shell knows no conditions. Written into the script of `fencehold sql init`.
EXISTS (SELECT 1 FROM fencehold_schema WHERE component = :component AND step = :step)
