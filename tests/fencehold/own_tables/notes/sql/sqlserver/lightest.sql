-- name: lightest
SELECT MIN(weight) AS weight FROM notes;
