-- name: leave_savepoints
-- only: postgres, because elsewhere a refused fence rolls the whole transaction back.
-- Undoes all of the caller's transaction and begins another in its place. A transaction that fails inside a savepoint can
-- be rolled back to it, and the rest committed; in this one there is no savepoint. Outside a transaction the server refuses.
ROLLBACK AND CHAIN;
