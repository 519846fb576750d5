CREATE TABLE orders (
    id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sku text   NOT NULL
);
