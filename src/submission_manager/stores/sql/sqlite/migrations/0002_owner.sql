-- The lease that the schedule belongs to, in one row: with two, two leaders would make every call.
CREATE TABLE IF NOT EXISTS submission_owner (
    one        INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    lease_name TEXT    NOT NULL COLLATE BINARY
);
