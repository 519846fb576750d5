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

-- What came in and took effect, inserted in the transaction of its effect.
CREATE TABLE idem.inbox (
    consumer     text COLLATE "C" NOT NULL,
    source       text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    hash         bytea            NOT NULL,
    handled_at   timestamptz      NOT NULL,
    expires_at   timestamptz      NOT NULL,
    PRIMARY KEY (consumer, source, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);

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
    PRIMARY KEY (side, consumer, source, id)
);

COMMENT ON COLUMN idem.dead_letters.side IS
    'outbox: it was not published; consumer is empty and source is its topic. inbox: a consumer could not handle it.';

-- +goose Down
DROP TABLE idem.dead_letters;
DROP TABLE idem.inbox;
DROP TABLE idem.outbox;
