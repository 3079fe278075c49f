-- name: hold
-- Keeps every other writer of the file waiting until the transaction ends.
BEGIN IMMEDIATE
