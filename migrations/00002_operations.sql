-- +goose Up

-- Numbers for the processes that work on operations. A process shows that it is alive by an
-- advisory lock on its number.
CREATE SEQUENCE idem.instances AS integer CYCLE;

-- As in idem.records, there are no CHECK constraints, no foreign keys and no enum, because only
-- this library writes to these tables. The columns that never change come first.
CREATE TABLE idem.operations (
    id           uuid              PRIMARY KEY,
    scope        text COLLATE "C"  NOT NULL,
    key          text COLLATE "C"  NOT NULL,
    hash         bytea             NOT NULL,
    name         text COLLATE "C"  NOT NULL,
    ttl          bigint            NOT NULL,
    created_at   timestamptz       NOT NULL,
    input        bytea,
    parent       uuid,
    epoch        integer           NOT NULL,
    owner        integer,
    state        text COLLATE "C"  NOT NULL,
    undoing      boolean           NOT NULL,
    canceled     boolean           NOT NULL DEFAULT false,
    kind         text COLLATE "C"  NOT NULL DEFAULT '',
    step         text COLLATE "C"  NOT NULL,
    policy       text COLLATE "C",
    undos        integer,
    seq          integer           NOT NULL,
    since        timestamptz       NOT NULL,
    wake_at      timestamptz       NOT NULL,
    tries        integer           NOT NULL,
    attempts     integer           NOT NULL,
    deaths       integer,
    taken_at     timestamptz,
    ended_at     timestamptz,
    without_calling boolean,
    without_code boolean,
    reason       text COLLATE "C",
    reason_step  text COLLATE "C",
    reason_text  text COLLATE "C",
    error_step   text COLLATE "C",
    error_attempt integer,
    error_text   bytea,
    error_at     timestamptz,
    error_next_at timestamptz
);
CREATE INDEX operations_due ON idem.operations (wake_at) WHERE state = 'running';
CREATE INDEX operations_parked ON idem.operations (since) WHERE state = 'parked';

CREATE TABLE idem.steps (
    operation_id uuid              NOT NULL,
    seq          integer           NOT NULL,
    kind         text COLLATE "C"  NOT NULL,
    name         text COLLATE "C"  NOT NULL,
    due_at       timestamptz,
    recorded_at  timestamptz       NOT NULL,
    outcome      text COLLATE "C"  NOT NULL,
    value        bytea,
    undos        integer,
    policy       text COLLATE "C",
    PRIMARY KEY (operation_id, seq)
);

CREATE TABLE idem.signals (
    operation_id uuid              NOT NULL,
    name         text COLLATE "C"  NOT NULL,
    sent_at      timestamptz       NOT NULL,
    value        bytea,
    taken        boolean           NOT NULL,
    PRIMARY KEY (operation_id, name)
);
CREATE INDEX signals_waiting ON idem.signals (operation_id) WHERE NOT taken;

-- Processes behind a pooler have no session that could hold an advisory lock. They have a lease
-- instead.
CREATE TABLE idem.leases (
    instance     integer           PRIMARY KEY,
    expires_at   timestamptz       NOT NULL
);

COMMENT ON SEQUENCE idem.instances IS
    'Numbers the processes that work on operations. While one is there it holds an advisory lock (1768187247, its number).';
COMMENT ON TABLE idem.operations IS
    'Multi-step work, from its first commit on. Work that is one transaction has no row here.';
COMMENT ON COLUMN idem.operations.scope IS
    'With key: the record that is held while the operation is under way, and completed by its last commit.';
COMMENT ON COLUMN idem.operations.ttl IS
    'Microseconds for which the answer is replayed, from the end.';
COMMENT ON COLUMN idem.operations.parent IS
    'The operation that has begun this one as a child, and awaits its end; NULL for all others.';
COMMENT ON COLUMN idem.operations.epoch IS
    'Grows whenever a process takes the operation up. Every commit names the epoch it belongs to, and is refused in another one.';
COMMENT ON COLUMN idem.operations.owner IS
    'The instance that works on it. NULL, or one that is not there any more: the next process may take it up.';
COMMENT ON COLUMN idem.operations.state IS
    'running; parked: waits for a person, see reason; completed: answered; failed: rejected and undone; undone: ended in an error or canceled, its key is free.';
COMMENT ON COLUMN idem.operations.undoing IS
    'It is decided that the operation is undone. Its row of kind end in idem.steps has the error or the rejection in which it ends; there is none if Cancel ends it.';
COMMENT ON COLUMN idem.operations.canceled IS
    'A person has canceled it: no further step is begun, and what is done is undone. without_calling: a call in doubt is not repeated. without_code: steps that the code no longer asks for are left as they are.';
COMMENT ON COLUMN idem.operations.kind IS
    'The kind of that step; empty if none is under way. A call, or the call of an undo, that has no row in idem.steps was begun alone and has no recorded outcome; undos and policy are those of that call. started: no step is recorded yet.';
COMMENT ON COLUMN idem.operations.step IS
    'The step that was begun, or is waited for, when the operation was last committed; seq is its place, 0 if there is none, and since the moment.';
COMMENT ON COLUMN idem.operations.wake_at IS
    'No process has to look at it before (database clock).';
COMMENT ON COLUMN idem.operations.tries IS
    'How often that step was tried before the pause that goes on until wake_at.';
COMMENT ON COLUMN idem.operations.attempts IS
    'How often the operation was taken up since it last got on.';
COMMENT ON COLUMN idem.operations.deaths IS
    'How many processes have died while they worked on it, without releasing it, since it last got on. It counts only while attempts is above 0; NULL if it was never taken up.';
COMMENT ON COLUMN idem.operations.reason IS
    'Why it is parked, as a code: call_in_doubt, attempts_exhausted, code_changed, value_unreadable, signal_unreadable, undo_failed, tx_ended, function_failed, too_many_deaths. reason_step is the step at which it stopped, reason_text the sentence.';
COMMENT ON COLUMN idem.operations.error_text IS
    'The last error, sealed as values are: of an attempt at error_step, or of the function if that is empty. error_attempt counts the attempts, or the runs. The next commit that makes progress clears it.';
COMMENT ON COLUMN idem.operations.taken_at IS
    'When it was last taken up; NULL if it never was.';
COMMENT ON TABLE idem.steps IS
    'The recorded steps of an operation: one row for each step that is over, for each pause, for each call of several that were begun together, and for each undo that is done.';
COMMENT ON COLUMN idem.steps.seq IS
    'The position of the step in the operation, from 1. Rows of kind end and undo follow all others.';
COMMENT ON COLUMN idem.steps.name IS
    'Of an undo: the name of the step that it undoes, with ##2 for the second undo of a step.';
COMMENT ON COLUMN idem.steps.outcome IS
    'done; resolved: done, with the value that a person has given; failed: the value is the error; rolled back: done, and rolled back when it was decided to undo the operation; waiting: until due_at, for a signal, or for the end of a child; begun, not sent: of a call that was begun together with others, since due_at, the value being the number of attempts.';
COMMENT ON COLUMN idem.steps.undos IS
    'How many undos the step has; NULL is none.';
COMMENT ON COLUMN idem.steps.policy IS
    'Of a call that was begun: keyed with its window, asked, or once.';
COMMENT ON TABLE idem.signals IS
    'What was sent to an operation from outside. The first of a name counts. "#" and the id of a child is the name of that child''s outcome.';
COMMENT ON COLUMN idem.signals.taken IS
    'The operation has recorded it, or has ended without it: it is not looked for.';
COMMENT ON TABLE idem.leases IS
    'Until when an instance counts as there although it holds no lock.';
COMMENT ON COLUMN idem.records.state IS
    'completed: the effect is committed. failed: rejected for good, the effect was undone. running: the row in idem.operations tells how far it is. processing: only ever visible if a caller''s function ended the transaction behind the library''s back; such a key is refused until it expires.';

-- +goose Down
DROP TABLE idem.leases;
DROP TABLE idem.signals;
DROP TABLE idem.steps;
DROP TABLE idem.operations;
DROP SEQUENCE idem.instances;
COMMENT ON COLUMN idem.records.state IS
    'completed: the effect is committed. failed: rejected for good, the effect was undone. processing: only ever visible if a caller''s function ended the transaction behind the library''s back; such a key is refused until it expires.';
