package bank

// Charge is the body of POST /charges.
type Charge struct {
	Customer    string `json:"customer"` // customer of the shop
	Card        string `json:"card"`     // a token, never a card number
	AmountCents int64  `json:"amount_cents"`
	Currency    string `json:"currency"`
	Reference   string `json:"reference"` // the shop's id of the checkout
}

// These are the test cards. Any other card is declined.
const (
	CardGood       = "card-good"
	CardDeclined   = "card-declined"
	CardLostAnswer = "card-lost-answer" // the card is charged, but the first request gets no answer
	CardSlow       = "card-slow"        // the card is charged, and the first request gets a late answer
)

// Entry is an entry of the ledger: the outcome of a charge, which is final for its key.
type Entry struct {
	ID       string `json:"id"`
	Declined bool   `json:"declined"`
	Asked    int    `json:"asked"` // the number of requests with the key; only the first request can charge the card
	Charge
}

func decide(c Charge) (declined bool) {
	switch c.Card {
	case CardGood, CardLostAnswer, CardSlow:
		return false
	}
	return true
}
