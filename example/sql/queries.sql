-- name: PlaceOrder :one
INSERT INTO orders (sku) VALUES ($1) RETURNING id, sku;
