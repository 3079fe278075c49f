-- What tells this outbox from one of the same name in another database, which a caller's connection may lead to. Everybody
-- may read it: it is no secret, and producers need no right that they did not have before.
IF OBJECT_ID(N'fencehold_outbox' + N'_identity') IS NULL
CREATE TABLE fencehold_outbox_identity (
    one       int          NOT NULL CONSTRAINT fencehold_outbox_identity_pkey PRIMARY KEY
                           CONSTRAINT fencehold_outbox_identity_one CHECK (one = 1),
    outbox_id nvarchar(36) COLLATE Latin1_General_BIN2 NOT NULL
);
GO
INSERT INTO fencehold_outbox_identity (one, outbox_id)
SELECT 1, LOWER(CONVERT(nvarchar(36), NEWID())) WHERE NOT EXISTS (SELECT 1 FROM fencehold_outbox_identity);
GO
GRANT SELECT ON fencehold_outbox_identity TO public;
