-- name: steps_table
CREATE TABLE IF NOT EXISTS fencehold_schema (
    component  TEXT NOT NULL,
    step       TEXT NOT NULL,
    applied_at TEXT NOT NULL,
    PRIMARY KEY (component, step)
);
