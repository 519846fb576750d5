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

-- Nothing in the table keeps a shipment from being taken in twice: that is what the inbox is for.
CREATE TABLE shipped (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id   bigint      NOT NULL REFERENCES orders,
    parcel     text        NOT NULL,
    told_at    timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX shipped_order_id_idx ON shipped (order_id);

COMMENT ON COLUMN orders.charge_id IS
    'What the bank calls the charge of an order that was paid by card. Empty if the order is on account.';
COMMENT ON COLUMN ledger.execution_id IS
    'The execution that booked the entry: the execution_id of its row in idem.records. It outlives that row as the trace from money back to a request.';

-- +goose Down
DROP TABLE shipped;
DROP TABLE ledger;
DROP TABLE orders;
DROP TABLE stock;
