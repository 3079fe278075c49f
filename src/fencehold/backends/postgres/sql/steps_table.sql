-- name: steps_table
CREATE TABLE IF NOT EXISTS fencehold_schema (
    component  varchar(64) NOT NULL,
    step       varchar(64) NOT NULL,
    applied_at timestamptz NOT NULL,
    PRIMARY KEY (component, step)
);
