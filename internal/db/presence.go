package db

// Holds reports whether the session has the lock on its number.
func (r *AppearInSessionRow) Holds() bool { return r.Held }

// Holds reports whether the session has the lock on its number.
func (r *AppearAsRelayRow) Holds() bool { return r.Held }
