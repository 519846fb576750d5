// Package event defines the messages between the shop and fulfilment.
package event

// OrderPlaced is sent by the shop through its outbox and the broker.
type OrderPlaced struct {
	OrderID  int64  `json:"order_id"`
	Customer string `json:"customer"`
	SKU      string `json:"sku"`
	Quantity int32  `json:"quantity"`
}

// OrderShipped is sent by fulfilment through its own outbox, as a webhook.
type OrderShipped struct {
	OrderID int64  `json:"order_id"`
	Parcel  string `json:"parcel"`
}

// Orders is the outbox topic of OrderPlaced. Shop is the outbox topic of OrderShipped.
const (
	Orders = "orders"
	Shop   = "shop"
)
