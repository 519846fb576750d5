package idemhttp

import "net/http"

// Outcome is what becomes of a handler's writes and of its answer.
type Outcome int

const (
	// Forget undoes the writes and remembers nothing: the key is free, and a repetition executes.
	Forget Outcome = iota

	// Undo undoes the writes and remembers the answer, which is final.
	Undo

	// Commit commits the writes together with the answer.
	Commit
)

// defaultStore remembers what will not be different next time.
func defaultStore(status int) Outcome {
	switch {
	case status < 400:
		return Commit
	case status >= 500, status == http.StatusConflict, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return Forget
	}
	return Undo
}
