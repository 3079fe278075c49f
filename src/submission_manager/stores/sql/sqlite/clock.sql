-- name: clock
-- only: sqlite, because elsewhere each page brings the clock along.
SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now;
