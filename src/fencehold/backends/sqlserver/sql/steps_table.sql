-- name: steps_table
IF OBJECT_ID(N'fencehold_schema') IS NULL
CREATE TABLE fencehold_schema (
    component  nvarchar(64) COLLATE Latin1_General_BIN2 NOT NULL,
    step       nvarchar(64) COLLATE Latin1_General_BIN2 NOT NULL,
    applied_at datetime2(7) NOT NULL,
    CONSTRAINT fencehold_schema_pkey PRIMARY KEY (component, step)
);
