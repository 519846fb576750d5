package operation

import (
	"fmt"
	"runtime"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
)

// seal returns a value as it is stored.
func seal(s store.Sealer, plain, bound []byte) (stored []byte, err error) {
	defer panicked(&err)
	stored, err = store.SealValue(s, plain, bound)
	if err != nil {
		return nil, fmt.Errorf("operation: %w", err)
	}
	return stored, nil
}

// open returns the value that was stored.
func open(s store.Sealer, stored, bound []byte) (plain []byte, err error) {
	defer panicked(&err)
	plain, err = store.OpenValue(s, stored, bound)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", idem.ErrUnreadable, err)
	}
	return plain, nil
}

// panicked makes a panic of a Sealer its error: it may panic wherever something is put on record, also where an operation is let go of. What it has
// panicked with may be a secret, unless the runtime says it.
func panicked(err *error) {
	switch value := recover().(type) {
	case nil:
	case runtime.Error:
		*err = fmt.Errorf("operation: the Sealer has panicked: %w", value)
	default:
		*err = fmt.Errorf("operation: the Sealer has panicked with a %T", value)
	}
}
