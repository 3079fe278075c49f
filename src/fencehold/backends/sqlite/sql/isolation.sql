-- name: isolation
-- The fence takes the write lock, which an older snapshot is refused: a transaction that holds it sees what is.
SELECT 'serializable';
