-- name: changes
-- PostgreSQL tells by itself; the channel is the table's name.
LISTEN "fencehold_leases";
