package seal

import "errors"

// Why something is not opened. Test for them with errors.Is. None of them carries anything that was sealed.
var (
	// ErrUnknownKey says that it was sealed with a key that is not among the Keys: one that was dropped too early, or that
	// this process has not been given yet.
	ErrUnknownKey = errors.New("seal: unknown key")

	// ErrTampered says that the key is known and what was sealed is not as it was, or not where it was: a person has changed,
	// cut short or moved it, or has given another secret the same id.
	ErrTampered = errors.New("seal: this is not what was sealed here")

	// ErrPlain says that it was not sealed, or that the mark that it was is gone. AcceptPlain lets what was not
	// sealed pass.
	ErrPlain = errors.New("seal: this was not sealed")
)
