package contestant

import "strconv"

// Statement is one SQL statement of the business: the work that an order needs, without any
// protection against repetition.
type Statement struct {
	SQL  string
	Args []any
}

// Business returns the statements that store an order. Every row that they insert contains the key,
// so that the benchmark can count the effects of each request. The key has no index.
type Business func(key string) []Statement

// Schema creates the tables for orders, stock and ledger.
const Schema = `
create table orders (id bigint generated always as identity primary key, op uuid not null, customer int not null, total bigint not null);
create table order_lines (id bigint generated always as identity primary key, op uuid not null, sku int not null, quantity int not null, price bigint not null);
create table stock (sku int primary key, on_hand bigint not null) with (fillfactor = 50);
create table ledger (id bigint generated always as identity primary key, op uuid not null, account int not null, amount bigint not null);
insert into stock select sku, 1000000000 from generate_series(0, 999) sku;`

const (
	insertOrder  = "insert into orders (op, customer, total) values ($1, $2, $3)"
	insertLine   = "insert into order_lines (op, sku, quantity, price) values ($1, $2, $3, $4)"
	updateStock  = "update stock set on_hand = on_hand - $2 where sku = $1"
	insertLedger = "insert into ledger (op, account, amount) values ($1, $2, $3)"
)

// OneInsert is the smallest possible write. With this business, the overhead of a contestant is a
// large part of the time.
func OneInsert(key string) []Statement {
	return []Statement{{insertOrder, []any{key, 7, 4900}}}
}

// Realistic returns the statements for an order with two lines, a stock update and a ledger entry.
func Realistic(key string) []Statement {
	sku := skuOf(key)
	return []Statement{
		{insertOrder, []any{key, 7, 4900}},
		{insertLine, []any{key, sku, 1, 2400}},
		{insertLine, []any{key, 999 - sku, 1, 2500}},
		{updateStock, []any{sku, 1}},
		{insertLedger, []any{key, 7, -4900}},
	}
}

// skuOf returns the article of an order. It distributes the orders over all articles, so that they
// rarely wait for each other's row locks.
func skuOf(key string) int {
	n, _ := strconv.ParseUint(key[:8], 16, 32)
	return int(n % 1000)
}
