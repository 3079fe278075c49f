-- name: make_wait
-- only: postgres, because only there a transaction can ask that its commit be on a standby before it is answered.
-- A transaction that only reads waits for no standby. This one writes an empty message to the log, which nobody reads and any
-- role may: so its commit waits until the standby has all that was committed before, what was read among it.
SELECT pg_logical_emit_message(true, 'fencehold', '');
