-- name: changes
-- A channel per table: whoever waits for events hears of no others.
LISTEN "fencehold_outbox";
