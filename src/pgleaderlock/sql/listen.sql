-- name: listen
-- Hints of a released lock.
LISTEN pgleaderlock;
