-- +goose Up
CREATE SCHEMA idem;

-- The first columns do not change when a call completes its record, so that the WAL of this update
-- has only the columns after them. The update changes no indexed column (a HOT update), because the
-- primary key is the only index. An index on expires_at would cost a write in every first run,
-- although the purge can walk the table instead. There are no CHECK constraints and no enum,
-- because only this library writes to the table, and the server prepares each constraint again for
-- every statement.
CREATE TABLE idem.records (
    scope        text COLLATE "C"  NOT NULL,
    key          text COLLATE "C"  NOT NULL,
    hash         bytea             NOT NULL,
    execution_id uuid              NOT NULL,
    created_at   timestamptz       NOT NULL,
    expires_at   timestamptz       NOT NULL,
    state        text COLLATE "C"  NOT NULL,
    status       integer,
    completed_at timestamptz,
    header       jsonb,
    body         bytea,
    sealed_by    text COLLATE "C",
    PRIMARY KEY (scope, key)
) WITH (
    -- Over time the purge leaves as many dead rows as the table has live rows. With the default
    -- settings of the server, a vacuum begins only when a fifth of the table is dead. The settings
    -- for the speed of a vacuum remain those of the server, because a vacuum competes with calls.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);

-- The position of the purge in each table, from which the next process resumes it, and the result
-- of the last complete sweep. There is one row for each table that is purged. Every portion of a
-- sweep updates the row, and the free space in its page (fillfactor) keeps this update HOT.
CREATE TABLE idem.sweeps (
    name             text COLLATE "C" NOT NULL,
    part             text COLLATE "C" NOT NULL DEFAULT '',
    block            bigint           NOT NULL DEFAULT 0,
    sweeper          uuid,
    seen_at          timestamptz,
    waiting_for      text COLLATE "C",
    started_at       timestamptz,
    progressed_at    timestamptz,
    total_pages      bigint           NOT NULL DEFAULT 0,
    pages            bigint           NOT NULL DEFAULT 0,
    deleted          bigint           NOT NULL DEFAULT 0,
    kept             bigint           NOT NULL DEFAULT 0,
    skipped          bigint           NOT NULL DEFAULT 0,
    last_started_at  timestamptz,
    last_finished_at timestamptz,
    last_pages       bigint           NOT NULL DEFAULT 0,
    last_deleted     bigint           NOT NULL DEFAULT 0,
    last_kept        bigint           NOT NULL DEFAULT 0,
    last_skipped     bigint           NOT NULL DEFAULT 0,
    deleted_total    bigint           NOT NULL DEFAULT 0,
    PRIMARY KEY (name)
) WITH (fillfactor = 20);

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
COMMENT ON COLUMN idem.records.execution_id IS
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

COMMENT ON TABLE idem.sweeps IS
    'One row per table that is purged: where the sweep under way is, and what the last one found. Without it a purge begins again; nothing else is lost.';
COMMENT ON COLUMN idem.sweeps.name IS
    'What is swept: records, operations.';
COMMENT ON COLUMN idem.sweeps.part IS
    'The partition at which the sweep goes on, as schema.table; the table itself if it has none; empty at the beginning.';
COMMENT ON COLUMN idem.sweeps.block IS
    'The block of that part at which the sweep goes on. Blocks before it have been walked.';
COMMENT ON COLUMN idem.sweeps.sweeper IS
    'Names the run that sweeps. NULL if none does; then the next run goes on from block. It is no lock: deleting is correct in any process.';
COMMENT ON COLUMN idem.sweeps.seen_at IS
    'The last sign of life of the sweeper (database clock). When it is too old, another run takes over.';
COMMENT ON COLUMN idem.sweeps.waiting_for IS
    'Why the sweep does not go on: replication, vacuum or lock. NULL while it does.';
COMMENT ON COLUMN idem.sweeps.started_at IS
    'When the sweep under way began (database clock). NULL if none is under way.';
COMMENT ON COLUMN idem.sweeps.progressed_at IS
    'When the last portion was committed (database clock).';
COMMENT ON COLUMN idem.sweeps.total_pages IS
    'How many pages the sweep under way has to walk, all parts together, as of its beginning.';
COMMENT ON COLUMN idem.sweeps.pages IS
    'How many pages the sweep under way has walked.';
COMMENT ON COLUMN idem.sweeps.deleted IS
    'How many rows the sweep under way has deleted.';
COMMENT ON COLUMN idem.sweeps.kept IS
    'How many rows it has met that may not go yet.';
COMMENT ON COLUMN idem.sweeps.skipped IS
    'How many rows it has met that may go but were locked or just changed by others; the next sweep meets them again.';
COMMENT ON COLUMN idem.sweeps.last_started_at IS
    'When the last whole sweep began (database clock): what had had its time by then is gone, except what was skipped.';
COMMENT ON COLUMN idem.sweeps.last_finished_at IS
    'When the last whole sweep ended (database clock).';
COMMENT ON COLUMN idem.sweeps.last_pages IS
    'How many pages the last whole sweep walked.';
COMMENT ON COLUMN idem.sweeps.last_deleted IS
    'How many rows the last whole sweep deleted.';
COMMENT ON COLUMN idem.sweeps.last_kept IS
    'How many rows the last whole sweep left because they may not go yet.';
COMMENT ON COLUMN idem.sweeps.last_skipped IS
    'How many rows the last whole sweep left because they were held.';
COMMENT ON COLUMN idem.sweeps.deleted_total IS
    'How many rows all sweeps have deleted since the table was made.';

-- +goose Down
DROP TABLE idem.sweeps;
DROP TABLE idem.records;
DROP SCHEMA idem;
