-- The lease that the schedule belongs to, in one row: with two, two leaders would make every call.
IF OBJECT_ID(N'submission_owner') IS NULL
CREATE TABLE submission_owner (
    one        int           NOT NULL,
    lease_name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    CONSTRAINT submission_owner_pkey PRIMARY KEY (one),
    CONSTRAINT submission_owner_one CHECK (one = 1)
);
