// Package event has what the shop and its fulfilment tell each other.
package event

// OrderPlaced leaves the shop through its outbox, over the broker.
type OrderPlaced struct {
	OrderID  int64  `json:"order_id"`
	Customer string `json:"customer"`
	SKU      string `json:"sku"`
	Quantity int32  `json:"quantity"`
}

// OrderShipped leaves fulfilment through an outbox of its own, as a webhook.
type OrderShipped struct {
	OrderID int64  `json:"order_id"`
	Parcel  string `json:"parcel"`
}

// The topics of the two, in the outbox that they leave through.
const (
	Orders = "orders"
	Shop   = "shop"
)
