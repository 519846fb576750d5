-- +goose Up

-- Messages to be published, in the order of seq. Once the broker has a message, its row is deleted
-- or moved to idem.published. Columns such as aggregatetype have the names that Debezium's outbox
-- event router expects. Because held is the first column of the primary key, messages that are held
-- back come last in the index, and the relay reads the other messages without them. The second
-- index contains only messages that are held back, so that the other messages need not be written
-- to it. No query looks up a message of this table by its id.
CREATE TABLE idem.outbox (
    seq                bigint           GENERATED ALWAYS AS IDENTITY,
    created_at         timestamptz      NOT NULL,
    id                 uuid             NOT NULL,
    held               boolean          NOT NULL DEFAULT false,
    attempts           integer,
    next_at            timestamptz,
    aggregatetype      text COLLATE "C" NOT NULL,
    aggregateid        text COLLATE "C" NOT NULL,
    type               text COLLATE "C" NOT NULL,
    payload            bytea,
    headers            jsonb,
    tracingspancontext text COLLATE "C",
    class              text COLLATE "C",
    reason             text COLLATE "C",
    PRIMARY KEY (held, seq)
) WITH (
    -- This table is filled and emptied all day, so its size depends on how soon vacuum removes dead
    -- rows.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000
);
CREATE INDEX outbox_held ON idem.outbox (aggregatetype, aggregateid, seq) WHERE held;

-- Messages that must not be published yet, in the order of not_before. When a message is due, a
-- relay moves it to idem.outbox. A message without a delay never comes here, and idem.outbox needs
-- no index for delays.
CREATE TABLE idem.delayed (
    seq                bigint           GENERATED ALWAYS AS IDENTITY,
    not_before         timestamptz      NOT NULL,
    created_at         timestamptz      NOT NULL,
    id                 uuid             NOT NULL,
    aggregatetype      text COLLATE "C" NOT NULL,
    aggregateid        text COLLATE "C" NOT NULL,
    type               text COLLATE "C" NOT NULL,
    payload            bytea,
    headers            jsonb,
    tracingspancontext text COLLATE "C",
    PRIMARY KEY (not_before, seq)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000
);

-- Published messages, which a relay keeps for as long as it is configured to keep them.
CREATE TABLE idem.published (
    id                 uuid             PRIMARY KEY,
    seq                bigint           NOT NULL,
    created_at         timestamptz      NOT NULL,
    published_at       timestamptz      NOT NULL,
    expires_at         timestamptz      NOT NULL,
    aggregatetype      text COLLATE "C" NOT NULL,
    aggregateid        text COLLATE "C" NOT NULL,
    type               text COLLATE "C" NOT NULL,
    payload            bytea,
    headers            jsonb
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);

-- Which instance of a relay publishes which part (lane) of the outbox. The column relay is the name
-- of the relay. The relay with the empty name publishes the topics that no other relay has.
CREATE TABLE idem.relays (
    relay              text COLLATE "C" NOT NULL,
    lane               integer          NOT NULL,
    instance           integer          NOT NULL,
    since              timestamptz      NOT NULL,
    generation         bigint           NOT NULL,
    PRIMARY KEY (relay, lane)
);

-- The topics of each relay that has a name. No other relay publishes them.
CREATE TABLE idem.relay_topics (
    relay              text COLLATE "C" PRIMARY KEY,
    topics             text[] COLLATE "C" NOT NULL,
    generation         bigint           NOT NULL,
    since              timestamptz      NOT NULL
);

COMMENT ON TABLE idem.outbox IS
    'Messages that are yet to be published.';
COMMENT ON COLUMN idem.outbox.held IS
    'It could not be published, or is behind one of the same topic and key that could not.';
COMMENT ON COLUMN idem.outbox.attempts IS
    'How often it could not be published, next_at when it is tried again, class and reason why. NULL of one that is only behind another.';
COMMENT ON COLUMN idem.outbox.tracingspancontext IS
    'The trace in which the message was added, as Debezium reads it: lines of name=value.';
COMMENT ON COLUMN idem.outbox.created_at IS
    'When the message was added, or was due if it was delayed.';
COMMENT ON TABLE idem.delayed IS
    'Messages that are not to be published before a moment. A relay, of whatever topics, inserts them in idem.outbox when they are due.';
COMMENT ON TABLE idem.relays IS
    'A key belongs to one of 16 lanes by its hash. The relay of a lane is the instance here, for as long as that is there: as in idem.operations.';
COMMENT ON COLUMN idem.relays.generation IS
    'That of the topics by which it works. Another relay that has been given some of them waits until it works by the new ones.';
COMMENT ON TABLE idem.relay_topics IS
    'The topics that a relay has for its own: names, or beginnings of names that end in *. A change of any relay makes the next generation.';

-- Received messages. The transaction that handles a message also inserts its row. If the handler
-- has failed, the row is written after the rollback. It then counts the attempts and says when the
-- next attempt is due, until the message is handled or dead-lettered. The index contains only
-- failing messages, which are few.
CREATE TABLE idem.inbox (
    consumer     text COLLATE "C" NOT NULL,
    source       text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    hash         bytea            NOT NULL,
    state        text COLLATE "C" NOT NULL,
    since        timestamptz      NOT NULL,
    expires_at   timestamptz      NOT NULL,
    attempts     integer,
    begun        boolean,
    hindered     integer,
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
COMMENT ON COLUMN idem.inbox.attempts IS
    'How many attempts have failed, or were announced before they began and have no recorded end.';
COMMENT ON COLUMN idem.inbox.begun IS
    'The last attempt was announced and has no recorded end: it is under way, or its process was killed.';
COMMENT ON COLUMN idem.inbox.hindered IS
    'How many attempts something else has hindered, a lock for example: they do not count, and make the pauses grow.';

-- Messages that could not be published or handled within the maximum number of attempts. A person
-- decides what happens to them.
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

-- Actions of people on records, operations and messages: one row for each action, inserted in the
-- transaction of the action. The primary key orders the rows by time. The rows have no number from
-- a sequence, because logical replication does not copy sequences.
CREATE TABLE idem.audit (
    at           timestamptz      NOT NULL,
    id           uuid             NOT NULL,
    act          text COLLATE "C" NOT NULL,
    outcome      text COLLATE "C" NOT NULL,
    role         text COLLATE "C" NOT NULL,
    person       text COLLATE "C" NOT NULL,
    reason       text COLLATE "C" NOT NULL,
    operation_id uuid,
    step         text COLLATE "C" NOT NULL,
    scope        text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    side         text COLLATE "C" NOT NULL,
    consumer     text COLLATE "C" NOT NULL,
    source       text COLLATE "C" NOT NULL,
    message_id   text COLLATE "C" NOT NULL,
    PRIMARY KEY (at, id)
);

COMMENT ON TABLE idem.audit IS
    'What people did: one row per act, written in the transaction of the act. What does not apply to an act is empty.';
COMMENT ON COLUMN idem.audit.at IS 'When it was done (database clock).';
COMMENT ON COLUMN idem.audit.act IS 'evict, retry, cancel, resolve, redrive, drop or forget.';
COMMENT ON COLUMN idem.audit.outcome IS
    'evict: the state of the record that was deleted. cancel: the state of the operation before. resolve: happened, not happened or refused. Others: done.';
COMMENT ON COLUMN idem.audit.role IS 'The session user: the role that logged in.';
COMMENT ON COLUMN idem.audit.person IS 'Who did it, as the program or the command was told; empty if it was not.';
COMMENT ON COLUMN idem.audit.reason IS 'Why, as the person said; empty if they did not.';
COMMENT ON COLUMN idem.audit.step IS 'The step of the operation that the act was about, or at which the operation was.';
COMMENT ON COLUMN idem.audit.key IS 'The idempotency key, abridged as in logs: never the whole key.';
COMMENT ON COLUMN idem.audit.side IS 'Of a dead letter, with consumer, source and message_id: its name in idem.dead_letters. Of a relay that is forgotten, its name is in consumer.';

-- +goose Down
DROP TABLE idem.audit;
DROP TABLE idem.dead_letters;
DROP TABLE idem.inbox;
DROP TABLE idem.relay_topics;
DROP TABLE idem.relays;
DROP TABLE idem.published;
DROP TABLE idem.delayed;
DROP TABLE idem.outbox;
