-- +goose Up
CREATE TABLE parcels (
    name  text    PRIMARY KEY,
    units integer NOT NULL
);

INSERT INTO parcels VALUES ('box', 10);

-- The table has no unique order_id: the inbox handles each order once.
CREATE TABLE shipments (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id   bigint      NOT NULL,
    customer   text        NOT NULL,
    parcel     text        NOT NULL,
    shipped_at timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE shipments;
DROP TABLE parcels;
