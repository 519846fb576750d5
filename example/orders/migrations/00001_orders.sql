-- +goose Up
CREATE TABLE stock (
    tenant   text    NOT NULL,
    sku      text    NOT NULL,
    quantity integer NOT NULL CHECK (quantity >= 0),
    PRIMARY KEY (tenant, sku)
);

CREATE TABLE orders (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant       text        NOT NULL,
    sku          text        NOT NULL,
    quantity     integer     NOT NULL CHECK (quantity > 0),
    amount_cents bigint      NOT NULL CHECK (amount_cents > 0),
    currency     text        NOT NULL,
    note         text        NOT NULL DEFAULT '',
    charge_id    text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX orders_tenant_id_idx ON orders (tenant, id);

CREATE TABLE ledger (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant       text        NOT NULL,
    order_id     bigint      NOT NULL REFERENCES orders,
    execution_id uuid        NOT NULL,
    amount_cents bigint      NOT NULL,
    currency     text        NOT NULL,
    booked_at    timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX ledger_order_id_idx ON ledger (order_id);

-- The table has no unique order_id: the inbox handles each message from fulfilment once.
CREATE TABLE shipped (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id   bigint      NOT NULL REFERENCES orders,
    parcel     text        NOT NULL,
    shipped_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX shipped_order_id_idx ON shipped (order_id);

COMMENT ON COLUMN orders.charge_id IS
    'Id of the charge at the bank. Empty if the order is on account.';
COMMENT ON COLUMN ledger.execution_id IS
    'execution_id of the record in idem.records whose request booked the entry. The entry is kept longer than the record.';

-- +goose Down
DROP TABLE shipped;
DROP TABLE ledger;
DROP TABLE orders;
DROP TABLE stock;
