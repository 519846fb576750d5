// Package audit passes on who does a manual action on a record, an operation or a message, and why.
// The context of the call carries the person and the reason. The transaction of the action stores
// them in idem.audit.
package audit

import (
	"context"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/display"
)

// The maximum numbers of bytes of a stored person and reason. Longer texts are truncated.
const (
	maxPerson = 200
	maxReason = 1000
)

type (
	personKey struct{}
	reasonKey struct{}
)

// WithPerson returns a context for the actions of the named person.
func WithPerson(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, personKey{}, display.Storable(name, maxPerson))
}

// WithReason returns a context for actions that are done for the given reason.
func WithReason(ctx context.Context, reason string) context.Context {
	return context.WithValue(ctx, reasonKey{}, display.Storable(reason, maxReason))
}

// Note returns the request that stores an action and its outcome in idem.audit, with the person and
// the reason that ctx carries.
func Note(ctx context.Context, action db.Act, outcome string) db.NoteAct {
	person, _ := ctx.Value(personKey{}).(string)
	reason, _ := ctx.Value(reasonKey{}).(string)
	return db.NoteAct{Act: action, Outcome: outcome, Person: person, Reason: reason}
}
