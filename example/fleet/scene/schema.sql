CREATE TABLE customers (
    tenant text NOT NULL,
    name   text NOT NULL,
    orders int  NOT NULL,
    billed int  NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, name)
);
CREATE TABLE orders (
    tenant   text   NOT NULL,
    id       uuid   NOT NULL,
    customer text   NOT NULL,
    number   int    NOT NULL,
    request  text   NOT NULL,
    cents    bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE TABLE bills (
    tenant   text NOT NULL,
    message  text NOT NULL,
    customer text NOT NULL,
    number   int  NOT NULL,
    in_order boolean NOT NULL,
    PRIMARY KEY (tenant, message)
);
