CREATE TABLE notes (
    note_id    TEXT    NOT NULL PRIMARY KEY,
    weight     INTEGER NOT NULL CHECK (weight > 0),
    written_at TEXT
);
