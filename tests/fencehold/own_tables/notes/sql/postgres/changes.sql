-- name: changes
LISTEN "notes";
