-- The lease that the schedule belongs to, in one row: with two, two leaders would make every call.
CREATE TABLE IF NOT EXISTS submission_owner (
    one        integer     NOT NULL CHECK (one = 1),
    lease_name varchar(64) COLLATE "C" NOT NULL,
    CONSTRAINT submission_owner_pkey PRIMARY KEY (one)
);
