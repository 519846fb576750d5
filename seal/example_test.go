package seal_test

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/idem-go/idem/seal"
)

// A key is replaced in three steps. In each step, processes of the step before still run. First all
// have both keys, then the new key becomes primary, and the old key is removed after the last
// record that it has sealed.
func Example() {
	old, young := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32) // usually from a secret manager
	before := seal.New(seal.Keys{Primary: "2026-11", Secrets: map[string][]byte{"2026-11": old}})
	both := seal.New(seal.Keys{Primary: "2026-11", Secrets: map[string][]byte{"2026-11": old, "2026-12": young}})
	after := seal.New(seal.Keys{Primary: "2026-12", Secrets: map[string][]byte{"2026-11": old, "2026-12": young}})
	dropped := seal.New(seal.Keys{Primary: "2026-12", Secrets: map[string][]byte{"2026-12": young}})

	record := []byte("what idem binds a response to")
	keyID, sealed, _ := before.Seal([]byte(`{"order":1}`), record)
	for _, sealer := range []*seal.Sealer{before, both, after} {
		plain, err := sealer.Open(keyID, sealed, record)
		fmt.Println(string(plain), err)
	}
	_, err := dropped.Open(keyID, sealed, record)
	fmt.Println(errors.Is(err, seal.ErrUnknownKey))
	_, err = after.Open(keyID, sealed, []byte("another record"))
	fmt.Println(errors.Is(err, seal.ErrTampered))
	// Output:
	// {"order":1} <nil>
	// {"order":1} <nil>
	// {"order":1} <nil>
	// true
	// true
}
