CREATE TABLE notes (
    note_id    text    NOT NULL PRIMARY KEY,
    weight     integer NOT NULL CHECK (weight > 0),
    written_at timestamptz
);
