package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// Act is something that a person does. Databases hold these words.
type Act string

// The acts.
const (
	Evict   Act = "evict"
	Retry   Act = "retry"
	Cancel  Act = "cancel"
	Resolve Act = "resolve"
	Redrive Act = "redrive"
	Drop    Act = "drop"
	Forget  Act = "forget"
)

// NoteAct puts on record what a person did, in the transaction of the act. What does not apply is empty.
type NoteAct struct {
	Act            Act
	Outcome        string
	Person, Reason string

	OperationID string
	Step        string
	Scope, Key  string // the key abridged
	Letter      LetterName
}

func (n *NoteAct) query() db.NoteAct {
	return db.NoteAct{
		Act: string(n.Act), Outcome: n.Outcome, Person: n.Person, Reason: n.Reason,
		OperationID: orNull(n.OperationID), Step: n.Step, Scope: n.Scope, Key: n.Key,
		Side: n.Letter.Side, Consumer: n.Letter.Consumer, Source: n.Letter.Source, MessageID: n.Letter.ID,
	}
}

// Queue adds the statement.
func (n *NoteAct) Queue(trip *roundtrip.Trip) { n.query().Queue(trip) }

// Read reads the answer.
func (*NoteAct) Read(trip *roundtrip.Trip) { trip.Skip() }

// In puts it on record through a transaction of the caller's.
func (n *NoteAct) In(ctx context.Context, tx pgx.Tx) error {
	q := n.query()
	_, err := tx.Exec(ctx, db.NoteActSQL, q.Args()...)
	return err
}
