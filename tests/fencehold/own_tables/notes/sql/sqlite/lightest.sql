-- name: lightest
SELECT min(weight) AS weight FROM notes;
