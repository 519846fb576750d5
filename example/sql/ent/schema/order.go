// Package schema describes the table from which ent generates a client.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Order describes a row of the table of orders.
type Order struct{ ent.Schema }

// Fields returns the columns of the table.
func (Order) Fields() []ent.Field {
	return []ent.Field{field.Int64("id"), field.String("sku").StructTag(`json:"sku"`)}
}
