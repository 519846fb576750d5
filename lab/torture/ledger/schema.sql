-- What the executions of a torture do, so that it shows if one is done twice, in part, or not at all. Nothing here is
-- unique on purpose: the tables must be able to hold what should not happen.
CREATE SCHEMA torture;

-- The effect of one execution, written by fn.
CREATE TABLE torture.effects (
    execution_id uuid        NOT NULL,
    op           bigint      NOT NULL, -- the call that executed
    scope        text        NOT NULL COLLATE "C",
    key          text        NOT NULL COLLATE "C",
    payload      text        NOT NULL,
    hash         bytea       NOT NULL,
    digest       text        NOT NULL, -- of the response that fn returned
    ttl_us       bigint      NOT NULL,
    noted_at     timestamptz NOT NULL DEFAULT clock_timestamp() -- while the execution held the key
);
CREATE INDEX effects_execution_id_idx ON torture.effects (execution_id);
CREATE INDEX effects_key_idx ON torture.effects (scope, key, noted_at);

-- The other half of an effect: money that goes from one account to another.
CREATE TABLE torture.accounts (
    id      integer PRIMARY KEY,
    balance bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE torture.entries (
    execution_id uuid    NOT NULL,
    account      integer NOT NULL,
    amount       bigint  NOT NULL
);
CREATE INDEX entries_execution_id_idx ON torture.entries (execution_id);

-- Every record that was deleted. Nothing but a purge deletes any.
CREATE TABLE torture.purged (
    execution_id uuid        NOT NULL,
    scope        text        NOT NULL COLLATE "C",
    key          text        NOT NULL COLLATE "C",
    state        text        NOT NULL,
    created_at   timestamptz NOT NULL,
    completed_at timestamptz,
    expires_at   timestamptz NOT NULL,
    deleted_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX purged_key_idx ON torture.purged (scope, key);

CREATE FUNCTION torture.note_purged() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO torture.purged (execution_id, scope, key, state, created_at, completed_at, expires_at)
    VALUES (OLD.execution_id, OLD.scope, OLD.key, OLD.state, OLD.created_at, OLD.completed_at, OLD.expires_at);
    RETURN NULL;
END $$;
CREATE TRIGGER note_purged AFTER DELETE ON idem.records FOR EACH ROW EXECUTE FUNCTION torture.note_purged();

-- What the caller of DoTx writes in its own transaction, before the call and after it.
CREATE TABLE torture.outers (
    op    bigint NOT NULL,
    scope text   NOT NULL COLLATE "C",
    key   text   NOT NULL COLLATE "C",
    part  text   NOT NULL -- before; then what DoTx answered: executed, rejected, replayed or refused
);

-- What a Tx step of an operation, or an undo, has written.
CREATE TABLE torture.steps (
    operation_id uuid   NOT NULL,
    step         text   NOT NULL COLLATE "C",
    nonce        text   NOT NULL,
    at           bigint NOT NULL, -- by the history's clock
    given        text   NOT NULL DEFAULT ''  -- of an undo: the value of its step
);

-- Every commit after which an operation has another owner, epoch or state than before, or is canceled, with the outcomes of its steps where
-- no process has it or Cancel has just come. Which columns there are is up to the library: those that it does not have are null here.
CREATE TABLE torture.moves (
    place        bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    operation_id uuid        NOT NULL,
    row          jsonb       NOT NULL,
    known        jsonb,
    by           text        NOT NULL,
    moved_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- It is deferred, because the steps are recorded behind the operation.
CREATE FUNCTION torture.note_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (OLD.epoch, OLD.owner, OLD.state, OLD.canceled) IS NOT DISTINCT FROM (NEW.epoch, NEW.owner, NEW.state, NEW.canceled) THEN
        RETURN NULL;
    END IF;
    INSERT INTO torture.moves (operation_id, row, known, by)
    SELECT NEW.id, to_jsonb(NEW) - 'input' - 'hash' - 'scope',
           CASE WHEN NEW.owner IS NULL OR NEW.canceled AND TG_OP = 'UPDATE' AND NOT OLD.canceled THEN
               (SELECT jsonb_object_agg(CASE s.kind WHEN 'undo' THEN 'undo ' ELSE '' END || s.name, s.outcome) FROM idem.steps s WHERE s.operation_id = NEW.id) END,
           current_setting('application_name');
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER note_move AFTER INSERT OR UPDATE ON idem.operations DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION torture.note_move();

-- Of a run of messages: the latest place of a key, held by whoever puts a letter under it into the outbox.
CREATE TABLE torture.voices (
    topic text   NOT NULL COLLATE "C",
    key   text   NOT NULL COLLATE "C",
    n     bigint NOT NULL,
    PRIMARY KEY (topic, key)
);

-- The letters that were put into the outbox, each with what it tells of.
CREATE TABLE torture.said (
    id     text NOT NULL COLLATE "C",
    letter text NOT NULL
);

-- What a consumer has written when it handled a letter. A handler that is to fail at the end of its transaction writes the same
-- to torture.once twice.
CREATE TABLE torture.heard (
    place    bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    consumer text   NOT NULL COLLATE "C",
    id       text   NOT NULL COLLATE "C",
    at       bigint NOT NULL
);

CREATE TABLE torture.once (
    id text NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED
);
