-- +goose Up
CREATE SCHEMA idem;

-- The columns that completing a record leaves alone come first: the update then logs only what follows them. It touches no
-- index (a HOT update), because the primary key is the only one: an index on expires_at would be one more to write in every
-- first run, for a purge that can walk the table instead. There are no CHECK constraints and no enum: the server builds each
-- constraint anew for every statement, and only this library writes.
CREATE TABLE idem.records (
    scope        text COLLATE "C"  NOT NULL,
    key          text COLLATE "C"  NOT NULL,
    hash         bytea             NOT NULL,
    operation_id uuid              NOT NULL,
    created_at   timestamptz       NOT NULL,
    expires_at   timestamptz       NOT NULL,
    state        text COLLATE "C"  NOT NULL,
    status       integer,
    completed_at timestamptz,
    header       jsonb,
    body         bytea,
    sealed_by    text COLLATE "C",
    PRIMARY KEY (scope, key)
);

COMMENT ON SCHEMA idem IS
    'Idempotency records of github.com/idem-go/idem. Safe to read; every write goes through the library.';
COMMENT ON TABLE idem.records IS
    'One row per (scope, key) whose effect is committed. It was inserted, and completed, in the same transaction as that effect.';
COMMENT ON COLUMN idem.records.scope IS
    'Who is calling and which operation: keys of different scopes never meet.';
COMMENT ON COLUMN idem.records.key IS
    'The idempotency key as the caller sent it. Treat it as a credential: it gives access to the stored response.';
COMMENT ON COLUMN idem.records.hash IS
    'Fingerprint of the request, 32 bytes. The same key with another hash is refused, not replayed.';
COMMENT ON COLUMN idem.records.operation_id IS
    'Names the one execution whose effect was committed: look for it in events and in downstream systems.';
COMMENT ON COLUMN idem.records.created_at IS
    'When the execution claimed the key (database clock).';
COMMENT ON COLUMN idem.records.expires_at IS
    'From this moment the key counts as new, whether or not the row is still here (database clock).';
COMMENT ON COLUMN idem.records.state IS
    'completed: the effect is committed. failed: rejected for good, the effect was undone. processing: only ever visible if a caller''s function ended the transaction behind the library''s back; such a key is refused until it expires.';
COMMENT ON COLUMN idem.records.status IS
    'Status of the stored response, in the caller''s own terms (an HTTP status, as a rule).';
COMMENT ON COLUMN idem.records.completed_at IS
    'When the response was recorded, just before the commit (database clock).';
COMMENT ON COLUMN idem.records.header IS
    'Header of the stored response: an object of arrays of strings, NULL if it has none.';
COMMENT ON COLUMN idem.records.body IS
    'Body of the stored response, byte for byte, NULL if it has none. Of a sealed response, header and body together, encrypted.';
COMMENT ON COLUMN idem.records.sealed_by IS
    'Id of the key that the response is sealed with, NULL if it is stored plain. A sealed response has no header of its own.';

-- +goose Down
DROP TABLE idem.records;
DROP SCHEMA idem;
