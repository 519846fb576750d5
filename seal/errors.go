package seal

import "errors"

// The errors of Open. Test for them with errors.Is. Their texts contain nothing that was sealed.
var (
	// ErrUnknownKey means that the Keys do not contain the key with which the response was sealed.
	// The key was removed too early, or this process does not have it yet.
	ErrUnknownKey = errors.New("seal: unknown key")

	// ErrTampered means that the sealed bytes were changed, truncated or moved to another record,
	// or that another secret was given the same key ID.
	ErrTampered = errors.New("seal: the sealed bytes were changed or moved, or the secret is another one")

	// ErrPlain means that the bytes were not sealed, or that their key ID was removed. AcceptPlain
	// accepts bytes that were not sealed.
	ErrPlain = errors.New("seal: the bytes were not sealed; use AcceptPlain while there are plain records")
)
