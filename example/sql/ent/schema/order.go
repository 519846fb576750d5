// Package schema says what ent keeps.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Order is a row of the table of orders.
type Order struct{ ent.Schema }

// Fields returns its columns.
func (Order) Fields() []ent.Field {
	return []ent.Field{field.Int64("id"), field.String("sku").StructTag(`json:"sku"`)}
}
