package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Taken is an operation that was taken up.
type Taken struct {
	OperationID string
	Scope, Key  string
	Hash        [32]byte
	Name        string
	TTL         time.Duration
	Input       []byte
	Epoch       int
	Undoing     bool
	Cancelled   bool
	Accepted    bool   // that a call is not taken back
	Step        string // the one that was under way
	Seq         int
	Tries       int
	Attempts    int
	Deaths      int    // processes that have died while they worked on it, since it last got on
	Parent      string // the operation that awaits it; empty if it is no child
	CreatedAt   time.Time
	Since       time.Time
	LoadedAt    time.Time
}

// Suspected is the number of deaths from which on an operation is a suspect: it may be the one that kills its processes.
const Suspected = 3

func (t *Taken) read(row *roundtrip.Row) {
	t.OperationID, t.Scope, t.Key = row.Text(), row.Text(), row.Text()
	copy(t.Hash[:], row.Bytes())
	t.Name = row.Text()
	t.TTL = time.Duration(row.Int()) * time.Microsecond
	t.Input = row.Bytes()
	t.Epoch, t.Undoing, t.Cancelled, t.Accepted = row.Int(), row.Bool(), row.Bool(), row.Bool()
	t.Step, t.Seq = row.Text(), row.Int()
	t.Tries, t.Attempts, t.Deaths, t.Parent = row.Int(), row.Int(), row.Int(), row.Text()
	t.CreatedAt, t.Since, t.LoadedAt = row.Time(), row.Time(), row.Time()
}

// TakeOperation takes one operation up if it is due and nobody works on it. The process asks only for an operation that it
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
	trip.Add(takeOperation, number(t.Owner), number(t.Epoch), boolean(t.Alone), []byte(t.OperationID))
}

// Read reads the answer.
func (t *TakeOperation) Read(trip *roundtrip.Trip) { t.Found = trip.Row(t.Taken.read) }

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
	trip.Add(takeOperations, number(t.Owner), array(t.Names), array(t.Running.List()), boolean(t.Alone), number(t.Room))
}

// Read reads the answer.
func (t *TakeOperations) Read(trip *roundtrip.Trip) {
	t.Taken = nil // of an earlier try
	trip.Rows(func(row *roundtrip.Row) {
		var taken Taken
		taken.read(row)
		t.Taken = append(t.Taken, taken)
	})
}

// Due is an operation that is due, or was sent the signal that it awaits, and that nobody works on.
type Due struct {
	OperationID string
	Name        string
	Epoch       int
}

func (d *Due) read(row *roundtrip.Row) {
	d.OperationID, d.Name, d.Epoch = row.Text(), row.Text(), row.Int()
}

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
	trip.Add(dueOperations, number(d.Room), array(d.Names), array(but))
}

// Read reads the answer.
func (d *DueOperations) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		var due Due
		due.read(row)
		d.Due = append(d.Due, due)
	})
}

// ReleaseOperations releases operations that were taken up, and that nothing was done about.
type ReleaseOperations struct{ Taken []Taken }

// Queue adds the statement.
func (r ReleaseOperations) Queue(trip *roundtrip.Trip) {
	ids, epochs := make([]string, len(r.Taken)), make([]string, len(r.Taken))
	for i := range r.Taken {
		ids[i], epochs[i] = r.Taken[i].OperationID, strconv.Itoa(r.Taken[i].Epoch)
	}
	trip.Add(releaseOperations, array(ids), array(epochs))
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
	trip.Add(disown, number(d.Owner), array(d.Running.List()))
}

// Read reads the answer.
func (Disown) Read(trip *roundtrip.Trip) { trip.Skip() }

var inArray = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// array writes texts as an array of Postgres.
func array(texts []string) []byte {
	var b strings.Builder
	b.WriteByte('{')
	for i, text := range texts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		inArray.WriteString(&b, text)
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return []byte(b.String())
}
