package contestant

import "strconv"

// Statement is one statement of the business.
type Statement struct {
	SQL  string
	Args []any
}

// Business returns the statements of an order. Every row contains the key, without an index, so
// that the effects can be counted.
type Business func(key string) []Statement

// Schema creates the tables of the business.
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

// OneInsert is the smallest possible write. It makes the overhead of a contestant most visible.
func OneInsert(key string) []Statement {
	return []Statement{{insertOrder, []any{key, 7, 4900}}}
}

// Realistic is an order with two lines, a stock update and a ledger entry.
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

// skuOf distributes the orders over the stock, so that they rarely wait for each other's row locks.
func skuOf(key string) int {
	n, _ := strconv.ParseUint(key[:8], 16, 32)
	return int(n % 1000)
}
