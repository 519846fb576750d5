-- +goose Up

-- What leaves: read in the order of seq, and gone (or in idem.published) once the broker has it. The columns that have no
-- name of ours are those of Debezium's outbox event router. seq is the only index: the identity of a message is never
-- looked up, and a second index would be one more to write in the caller's transaction.
CREATE TABLE idem.outbox (
    seq                bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id                 uuid             NOT NULL,
    aggregatetype      text COLLATE "C" NOT NULL,
    aggregateid        text COLLATE "C" NOT NULL,
    type               text COLLATE "C" NOT NULL,
    payload            bytea,
    headers            jsonb,
    tracingspancontext text COLLATE "C",
    created_at         timestamptz      NOT NULL
) WITH (
    -- A table that is filled and emptied all day is as large as what vacuum leaves in it.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000
);

-- What came in. A message that is handled has its row from the transaction of its effect. One whose handler has failed has a row
-- as well, written after that was rolled back: it counts the attempts and says when the next one is due, until the message is
-- handled, or dead. The index has the failing ones alone, which are few.
CREATE TABLE idem.inbox (
    consumer     text COLLATE "C" NOT NULL,
    source       text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    hash         bytea            NOT NULL,
    state        text COLLATE "C" NOT NULL,
    since        timestamptz      NOT NULL,
    expires_at   timestamptz      NOT NULL,
    attempts     integer,
    begun        integer,
    retry_at     timestamptz,
    key          text COLLATE "C",
    PRIMARY KEY (consumer, source, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);
CREATE INDEX inbox_failing ON idem.inbox (consumer, source, key) WHERE state = 'failing';

COMMENT ON COLUMN idem.inbox.state IS 'handled, failing (it is to be tried again) or dead (idem.dead_letters has it).';
COMMENT ON COLUMN idem.inbox.since IS 'When it was handled, failed for the first time, or died.';
COMMENT ON COLUMN idem.inbox.attempts IS 'How many attempts have failed.';
COMMENT ON COLUMN idem.inbox.begun IS 'How many attempts were announced before they began, and have not told how they ended: the process was killed.';

-- What nobody could publish, or handle, after as many attempts as it may have. A person decides.
CREATE TABLE idem.dead_letters (
    side         text COLLATE "C" NOT NULL,
    consumer     text COLLATE "C" NOT NULL,
    source       text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL,
    payload      bytea,
    headers      jsonb,
    sealed_by    text COLLATE "C",
    class        text COLLATE "C" NOT NULL,
    reason       text COLLATE "C" NOT NULL,
    attempts     integer          NOT NULL,
    created_at   timestamptz      NOT NULL,
    died_at      timestamptz      NOT NULL,
    redrive_at   timestamptz,
    PRIMARY KEY (side, consumer, source, id)
);

COMMENT ON COLUMN idem.dead_letters.redrive_at IS
    'Since when it is to be tried again, because a person wants it. It goes when that works.';
COMMENT ON COLUMN idem.dead_letters.side IS
    'outbox: it was not published; consumer is empty and source is its topic. inbox: a consumer could not handle it.';

-- +goose Down
DROP TABLE idem.dead_letters;
DROP TABLE idem.inbox;
DROP TABLE idem.outbox;
