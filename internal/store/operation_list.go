package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// ListOperations tells of operations, in the order of their ids.
type ListOperations struct {
	State OperationState // empty: any
	After string         // only those with ids above this one
	Scope string         // only those whose scope begins like this
	Name  string         // empty: any
	Step  string         // empty: any
	Age   time.Duration  // only those begun at least that long ago
	Room  int

	Listed []ListedOperation
}

// ListedOperation is one of them.
type ListedOperation struct {
	OperationID string
	Scope       string
	Name        string
	State       OperationState
	Undoing     bool
	Step        string
	Attempts    int
	Reason      string
	ReasonText  string
	CreatedAt   time.Time
	Since       time.Time
	EndedAt     time.Time
}

// Queue adds the statement.
func (l *ListOperations) Queue(trip *roundtrip.Trip) {
	q := db.ListOperations{State: string(l.State), AfterOperation: l.After, Scope: l.Scope, Name: l.Name, Step: l.Step, Age: l.Age, Room: l.Room}
	q.Queue(trip)
}

// Read reads the answer.
func (l *ListOperations) Read(trip *roundtrip.Trip) {
	var q db.ListOperations
	q.Each(trip, func(row *db.ListOperationsRow) {
		l.Listed = append(l.Listed, ListedOperation{
			OperationID: row.OperationID, Scope: row.Scope, Name: row.Name, State: OperationState(row.State),
			Undoing: row.Undoing, Step: row.Step, Attempts: row.Attempts, Reason: row.Reason, ReasonText: row.ReasonText,
			CreatedAt: row.CreatedAt, Since: row.Since, EndedAt: row.EndedAt,
		})
	})
}

// FindOperation tells whose key an operation has, and how far it is.
type FindOperation struct {
	OperationID string

	Found      bool
	Scope, Key string
	Hash       [32]byte
	Name       string
	State      OperationState
	Step       string
	Reason     string
	ReasonText string
	Since      time.Time
}

// Queue adds the statement.
func (f *FindOperation) Queue(trip *roundtrip.Trip) {
	q := db.FindOperation{OperationID: f.OperationID}
	q.Queue(trip)
}

// Read reads the answer.
func (f *FindOperation) Read(trip *roundtrip.Trip) {
	var q db.FindOperation
	q.Read(trip)
	row := &q.Row
	f.Found, f.Scope, f.Key, f.Name, f.State = q.Found, row.Scope, row.Key, row.Name, OperationState(row.State)
	copy(f.Hash[:], row.Hash)
	f.Step, f.Reason, f.ReasonText, f.Since = row.Step, row.Reason, row.ReasonText, row.Since
}
