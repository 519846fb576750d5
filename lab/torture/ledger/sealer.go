package ledger

import (
	"bytes"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/seal"
)

// Sealer is how some of the processes of a service keep responses.
type Sealer struct {
	Name string
	*seal.Sealer
}

// Sealers are those of a service in the middle of a roll-out and of a rotation at once: some processes write plain, some with
// the one key and some with the other, and each reads what any of them writes.
var Sealers = []Sealer{
	{"plain", seal.New(keys("one"), seal.WritePlain())},
	{"sealed by key one", seal.New(keys("one"), seal.AcceptPlain())},
	{"sealed by key two", seal.New(keys("two"), seal.AcceptPlain())},
}

func keys(primary string) seal.Keys {
	return seal.Keys{Primary: primary, Secrets: map[string][]byte{
		"one": bytes.Repeat([]byte{1}, seal.SecretSize), "two": bytes.Repeat([]byte{2}, seal.SecretSize),
	}}
}

// unreadable is the digest of a response that is not opened. It is that of no other.
const unreadable = "unreadable"

// open opens the response of a record.
func open(record *db.Record, scope, key string, hash [32]byte) error {
	of := db.NewKey(scope, key, hash, record.ExecutionID, 0)
	return record.Open(&of, Sealers[0])
}
