-- name: changes
-- Differs whenever another connection has committed to this file; reads no table.
PRAGMA data_version;
