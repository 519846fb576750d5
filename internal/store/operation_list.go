package store

import (
	"time"

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
	CreatedAt   time.Time
	Since       time.Time
	EndedAt     time.Time
}

func (l *ListedOperation) read(row *roundtrip.Row) {
	l.OperationID, l.Scope, l.Name, l.State = row.Text(), row.Text(), row.Text(), OperationState(row.Text())
	l.Undoing, l.Step, l.Attempts, l.Reason = row.Bool(), row.Text(), row.Int(), row.Text()
	l.CreatedAt, l.Since, l.EndedAt = row.Time(), row.Time(), row.Time()
}

// Queue adds the statement.
func (l *ListOperations) Queue(trip *roundtrip.Trip) {
	trip.Add(listOperations, []byte(l.State), []byte(l.After), []byte(l.Scope), []byte(l.Name), []byte(l.Step), microseconds(l.Age), number(l.Room))
}

// Read reads the answer.
func (l *ListOperations) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		var listed ListedOperation
		listed.read(row)
		l.Listed = append(l.Listed, listed)
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
	Since      time.Time
}

// Queue adds the statement.
func (f *FindOperation) Queue(trip *roundtrip.Trip) { trip.Add(findOperation, []byte(f.OperationID)) }

// Read reads the answer.
func (f *FindOperation) Read(trip *roundtrip.Trip) {
	f.Found = trip.Row(func(row *roundtrip.Row) {
		f.Scope, f.Key = row.Text(), row.Text()
		copy(f.Hash[:], row.Bytes())
		f.Name, f.State, f.Step, f.Reason, f.Since = row.Text(), OperationState(row.Text()), row.Text(), row.Text(), row.Time()
	})
}
