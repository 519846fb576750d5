package store

import (
	"fmt"
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// Taken is an operation that was taken up.
type Taken struct {
	OperationID                 string
	Scope, Key                  string
	Hash                        [32]byte
	Name                        string
	TTL                         time.Duration
	Input                       []byte
	Epoch                       int
	Undoing                     bool
	Canceled                    bool
	WithoutCalling, WithoutCode bool     // how it was canceled
	Kind                        StepKind // of Step, or Started
	Step                        string   // the one that was under way
	Seq                         int
	Tries                       int
	Attempts                    int
	Deaths                      int    // processes that have died while they worked on it, since it last got on
	Parent                      string // the operation that awaits it; empty if it is no child
	CreatedAt                   time.Time
	Since                       time.Time
	LoadedAt                    time.Time
}

// Suspected is the number of deaths from which on an operation is a suspect: it may be the one that kills its processes.
const Suspected = 3

// takenOf returns the operation of a row.
func takenOf(row *db.TakeOperationsRow) Taken {
	return Taken{
		OperationID: row.OperationID, Scope: row.Scope, Key: row.Key, Hash: [32]byte(row.Hash), Name: row.Name,
		TTL: time.Duration(row.TTL) * time.Microsecond, Input: row.Input, Epoch: row.Epoch,
		Undoing: row.Undoing, Canceled: row.Canceled, WithoutCalling: row.WithoutCalling, WithoutCode: row.WithoutCode, Kind: StepKind(row.Kind), Step: row.Step, Seq: row.Seq,
		Tries: row.Tries, Attempts: row.Attempts, Deaths: row.Deaths, Parent: row.Parent,
		CreatedAt: row.CreatedAt, Since: row.Since, LoadedAt: row.LoadedAt,
	}
}

// TakeOperation takes one operation up if it is due and no process works on it. The process asks only for an operation that it
// does not work on itself.
type TakeOperation struct {
	OperationID string
	Owner       int  // the instance that takes it up
	Epoch       int  // in which this process has had it, 0 if it has not
	Alone       bool // it may be a suspect: the process works on no other one

	Found bool
	Taken Taken
}

// Queue adds the statement.
func (t *TakeOperation) Queue(trip *roundtrip.Trip) {
	q := db.TakeOperation{Owner: t.Owner, Epoch: t.Epoch, Alone: t.Alone, OperationID: t.OperationID}
	q.Queue(trip)
}

// Read reads the answer.
func (t *TakeOperation) Read(trip *roundtrip.Trip) {
	var q db.TakeOperation
	q.Read(trip)
	if t.Found = q.Found; t.Found {
		row := db.TakeOperationsRow(q.Row)
		t.Taken = takenOf(&row)
	}
}

// Lister tells the operations that a process works on. It is asked when a statement is sent.
type Lister interface{ List() []string }

// TakeOperations takes up what is due.
type TakeOperations struct {
	Owner   int
	Names   []string
	Running Lister // that this process works on
	Alone   bool   // one of them may be a suspect: the process works on no other one
	Room    int    // how many at most

	Taken []Taken
}

// Queue adds the statement.
func (t *TakeOperations) Queue(trip *roundtrip.Trip) {
	q := db.TakeOperations{Owner: t.Owner, Names: array(t.Names), Running: array(t.Running.List()), Alone: t.Alone, Room: t.Room}
	q.Queue(trip)
}

// Read reads the answer.
func (t *TakeOperations) Read(trip *roundtrip.Trip) {
	t.Taken = nil // of an earlier try
	var q db.TakeOperations
	q.Each(trip, func(row *db.TakeOperationsRow) { t.Taken = append(t.Taken, takenOf(row)) })
}

// Due is an operation that is due, or was sent the signal that it awaits, and that no process works on.
type Due = db.DueOperationsRow

// DueOperations tells what is due.
type DueOperations struct {
	Names []string
	But   []Due // which are not to be told
	Room  int

	Due []Due
}

// Queue adds the statement.
func (d *DueOperations) Queue(trip *roundtrip.Trip) {
	but := make([]string, len(d.But))
	for i, b := range d.But {
		but[i] = fmt.Sprint(b.OperationID, "/", b.Epoch)
	}
	q := db.DueOperations{Room: d.Room, Names: array(d.Names), But: array(but)}
	q.Queue(trip)
}

// Read reads the answer.
func (d *DueOperations) Read(trip *roundtrip.Trip) {
	var q db.DueOperations
	q.Read(trip)
	d.Due = append(d.Due, q.Rows...)
}

// ReleaseOperations releases operations that were taken up, and that nothing was done about.
type ReleaseOperations struct{ Taken []Taken }

// Queue adds the statement.
func (r ReleaseOperations) Queue(trip *roundtrip.Trip) {
	ids, epochs := make([]string, len(r.Taken)), make([]string, len(r.Taken))
	for i := range r.Taken {
		ids[i], epochs[i] = r.Taken[i].OperationID, strconv.Itoa(r.Taken[i].Epoch)
	}
	db.ReleaseOperations{OperationIDs: array(ids), Epochs: array(epochs)}.Queue(trip)
}

// Read reads the answer.
func (ReleaseOperations) Read(trip *roundtrip.Trip) { trip.Skip() }

// Disown releases what has the number of this process without its working on it.
type Disown struct {
	Owner   int
	Running Lister // that it works on
}

// Queue adds the statement.
func (d Disown) Queue(trip *roundtrip.Trip) {
	db.Disown{Owner: d.Owner, Running: array(d.Running.List())}.Queue(trip)
}

// Read reads the answer.
func (Disown) Read(trip *roundtrip.Trip) { trip.Skip() }
