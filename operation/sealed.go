package operation

import (
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
)

// seal returns a value as it is stored.
func seal(s store.Sealer, plain, bound []byte) ([]byte, error) {
	stored, err := store.SealValue(s, plain, bound)
	if err != nil {
		return nil, fmt.Errorf("operation: %w", err)
	}
	return stored, nil
}

// open returns the value that was stored.
func open(s store.Sealer, stored, bound []byte) ([]byte, error) {
	plain, err := store.OpenValue(s, stored, bound)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", idem.ErrUnreadable, err)
	}
	return plain, nil
}
