package idemhttp

import "net/http"

// Decision says whether a handler's writes are committed, and whether its answer is remembered.
type Decision int

const (
	// Forget undoes the writes and remembers nothing: the key is free, and a repetition executes.
	Forget Decision = iota

	// Undo undoes the writes and remembers the answer, which is final.
	Undo

	// Commit commits the writes together with the answer.
	Commit
)

// defaultDecide remembers what will not be different next time. Of 4xx, that leaves out the statuses by which a server asks
// for the same request again: with a credential (401), or later.
func defaultDecide(status int) Decision {
	switch status {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked, http.StatusTooEarly,
		http.StatusTooManyRequests:
		return Forget
	}
	switch {
	case status < 400:
		return Commit
	case status >= 500:
		return Forget
	}
	return Undo
}
