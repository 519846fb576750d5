-- Goods to order, so that the first curl works.

-- +goose Up
INSERT INTO stock (tenant, sku, quantity) VALUES
    ('acme',   'teapot',  1000),
    ('acme',   'samovar', 0),
    ('globex', 'teapot',  1000);

-- +goose Down
DELETE FROM stock;
