CREATE TABLE notes (
    note_id    nvarchar(100) NOT NULL CONSTRAINT notes_pkey PRIMARY KEY,
    weight     int           NOT NULL CONSTRAINT notes_weight CHECK (weight > 0),
    written_at datetime2(6)
);
