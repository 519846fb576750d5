package ledger

import (
	"bytes"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/seal"
)

// Sealers are those of a service during a roll-out and a key rotation at the same time. Some
// processes write plain responses, some seal with one key and some with the other. Each can read
// all of them.
var Sealers = []*seal.Sealer{
	seal.New(keys("one"), seal.WritePlain()), seal.New(keys("one"), seal.AcceptPlain()), seal.New(keys("two"), seal.AcceptPlain()),
}

func keys(primary string) seal.Keys {
	return seal.Keys{Primary: primary, Secrets: map[string][]byte{
		"one": bytes.Repeat([]byte{1}, seal.SecretSize), "two": bytes.Repeat([]byte{2}, seal.SecretSize),
	}}
}

// unreadable is the digest of a response that cannot be opened. No other response has it.
const unreadable = "unreadable"

// open opens the response of a record.
func open(record *db.Record, scope, key string, hash [32]byte) error {
	of := db.NewKey(scope, key, hash, record.ExecutionID, 0)
	return record.Open(&of, Sealers[0])
}
