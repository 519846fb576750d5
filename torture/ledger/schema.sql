-- What the executions of a torture do, so that it shows if one is done twice, in part, or not at all. Nothing here is
-- unique on purpose: the tables must be able to hold what should not happen.
CREATE SCHEMA torture;

-- The effect of one execution, written by fn.
CREATE TABLE torture.effects (
    operation_id uuid        NOT NULL,
    op           bigint      NOT NULL, -- the call that executed
    scope        text        NOT NULL COLLATE "C",
    key          text        NOT NULL COLLATE "C",
    payload      text        NOT NULL,
    hash         bytea       NOT NULL,
    digest       text        NOT NULL, -- of the response that fn returned
    ttl_us       bigint      NOT NULL,
    noted_at     timestamptz NOT NULL DEFAULT clock_timestamp() -- while the execution held the key
);
CREATE INDEX effects_operation_id_idx ON torture.effects (operation_id);
CREATE INDEX effects_key_idx ON torture.effects (scope, key, noted_at);

-- The other half of an effect: money that goes from one account to another.
CREATE TABLE torture.accounts (
    id      integer PRIMARY KEY,
    balance bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE torture.entries (
    operation_id uuid    NOT NULL,
    account      integer NOT NULL,
    amount       bigint  NOT NULL
);
CREATE INDEX entries_operation_id_idx ON torture.entries (operation_id);

-- What the caller of DoTx writes in its own transaction, before the call and after it.
CREATE TABLE torture.outers (
    op    bigint NOT NULL,
    scope text   NOT NULL COLLATE "C",
    key   text   NOT NULL COLLATE "C",
    part  text   NOT NULL -- before; then what DoTx answered: executed, rejected, replayed or refused
);
