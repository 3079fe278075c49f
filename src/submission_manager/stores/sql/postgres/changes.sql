-- name: changes
-- only: postgres, because it is the one that can tell.
LISTEN "submission_intents";
