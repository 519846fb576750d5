package store

import (
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// OperationState is the state of an operation.
type OperationState string

// The states of an operation.
const (
	OperationRunning   OperationState = "running"
	OperationParked    OperationState = "parked"
	OperationCompleted OperationState = "completed"
	OperationFailed    OperationState = "failed" // rejected, and undone
	OperationUndone    OperationState = "undone" // ended in an error; its key is free
)

// The room of a Hold. A record that is held has to expire some day, because it has to have a moment; no call outlives that
// one.
const (
	Held = "1000 years"
	Free = "0"
)

// Hold makes the record that the transaction has claimed one of an operation. Where there is none, the server answers with
// the SQLSTATE Gone.
type Hold struct {
	Key  *Key
	Room string // Held or Free

	Done bool
}

// Queue adds the statement.
func (h *Hold) Queue(trip *roundtrip.Trip) {
	k := h.Key
	trip.Add(hold, k.scope, k.key, k.operationID, []byte(h.Room))
}

// Read reads the answer.
func (h *Hold) Read(trip *roundtrip.Trip) {
	h.Done = trip.Row(func(row *roundtrip.Row) { row.Skip() })
}

// Endless is the pause of an operation that waits for a child: the child's end wakes it.
const Endless = 100 * 365 * 24 * time.Hour

// At is where an operation is after a commit.
type At struct {
	Kind  StepKind
	Step  string
	Seq   int           // 0 if no step is under way, also where nothing of the step was sent
	Pause time.Duration // until somebody has to look at it
	Owner int           // 0 if it is for whoever comes
	Tries int
}

func (a *At) owner() []byte {
	if a.Owner == 0 {
		return nil
	}
	return number(a.Owner)
}

// BeginOperation writes down an operation.
type BeginOperation struct {
	Key       *Key
	Name      string
	TTL       time.Duration
	ClaimedAt time.Time // zero: now, by the database's clock
	Input     []byte
	Parent    string // the operation that awaits it; empty if it is no child
	At        At
}

// Queue adds the statement.
func (b *BeginOperation) Queue(trip *roundtrip.Trip) {
	k := b.Key
	var parent, claimed []byte
	if !b.ClaimedAt.IsZero() {
		claimed = microseconds(b.ClaimedAt.Sub(time.Unix(0, 0)))
	}
	if b.Parent != "" {
		parent = []byte(b.Parent)
	}
	trip.Add(beginOperation, k.operationID, k.scope, k.key, k.hash, []byte(b.Name), strconv.AppendInt(nil, b.TTL.Microseconds(), 10),
		claimed, b.Input, parent,
		b.At.owner(), []byte(b.At.Kind), []byte(b.At.Step), number(b.At.Seq), microseconds(b.At.Pause))
}

// Read reads the answer.
func (b *BeginOperation) Read(trip *roundtrip.Trip) {
	trip.Skip()
}

// AdvanceOperation is in every later commit of an operation. Where somebody else has taken it up, the server answers with the
// SQLSTATE Gone, and Advanced is false.
type AdvanceOperation struct {
	OperationID string
	Epoch       int
	State       OperationState
	Undoing     bool
	Cancelled   *bool // what this run knows; nil if that does not matter
	At          At

	Advanced bool
}

// Queue adds the statement.
func (a *AdvanceOperation) Queue(trip *roundtrip.Trip) {
	var cancelled []byte
	if a.Cancelled != nil {
		cancelled = boolean(*a.Cancelled)
	}
	trip.Add(advanceOperation, []byte(a.OperationID), a.At.owner(), []byte(a.State), boolean(a.Undoing), []byte(a.At.Kind), []byte(a.At.Step),
		number(a.At.Seq), microseconds(a.At.Pause), number(a.At.Tries), number(a.Epoch), cancelled)
}

// Read reads the answer.
func (a *AdvanceOperation) Read(trip *roundtrip.Trip) {
	a.Advanced = trip.Row(func(row *roundtrip.Row) { row.Skip() })
}

// ShowOperation tells how far an operation is.
type ShowOperation struct {
	OperationID string

	Found   bool
	Scope   string
	Hash    [32]byte // of the request that it belongs to
	Name    string
	State   OperationState
	Epoch   int
	Undoing bool

	Cancelled bool
	Kind      StepKind
	Step      string
	Attempts  int
	Reason    string
	Parent    string // the operation that awaits it; empty if it is no child
	Since     time.Time
	WakeAt    time.Time // zero if it waits for a child
	LoadedAt  time.Time
}

// Queue adds the statement.
func (s *ShowOperation) Queue(trip *roundtrip.Trip) { trip.Add(showOperation, []byte(s.OperationID)) }

// Read reads the answer.
func (s *ShowOperation) Read(trip *roundtrip.Trip) {
	s.Found = trip.Row(func(row *roundtrip.Row) {
		s.Scope = row.Text()
		copy(s.Hash[:], row.Bytes())
		s.Name, s.State = row.Text(), OperationState(row.Text())
		s.Epoch, s.Undoing, s.Cancelled, s.Kind, s.Step = row.Int(), row.Bool(), row.Bool(), StepKind(row.Text()), row.Text()
		s.Attempts, s.Reason, s.Parent = row.Int(), row.Text(), row.Text()
		s.Since, s.WakeAt, s.LoadedAt = row.Time(), row.Time(), row.Time()
		if s.Kind == ChildStep && s.WakeAt.Sub(s.LoadedAt) > Endless/2 {
			s.WakeAt = time.Time{}
		}
	})
}

// ReleaseOperation lets go of an operation, unless somebody else has it.
type ReleaseOperation struct {
	OperationID string
	Epoch       int
	Tries       int // of the call under way
	Pause       time.Duration
}

// Queue adds the statement.
func (r ReleaseOperation) Queue(trip *roundtrip.Trip) {
	trip.Add(releaseOperation, number(r.Tries), microseconds(r.Pause), []byte(r.OperationID), number(r.Epoch))
}

// Read reads the answer.
func (ReleaseOperation) Read(trip *roundtrip.Trip) { trip.Skip() }

// ParkOperation stops an operation until a person has seen to it.
type ParkOperation struct {
	OperationID string
	Epoch       int
	Reason      string
	Step        string
	Unbacked    bool // that step is a call, and nothing takes it back

	Parked bool
}

// Queue adds the statement.
func (p *ParkOperation) Queue(trip *roundtrip.Trip) {
	trip.Add(parkOperation, []byte(p.Reason), []byte(p.Step), boolean(p.Unbacked), []byte(p.OperationID), number(p.Epoch))
}

// Read reads the answer.
func (p *ParkOperation) Read(trip *roundtrip.Trip) { p.Parked = trip.Skip().RowsAffected() > 0 }

// ReviveOperation lets an operation go on.
type ReviveOperation struct {
	OperationID string
	Cancel      bool // towards its end; it may be one that runs
	Fresh       bool // only if it was not cancelled before
	Unknown     bool // only one with a call or an undo that was begun and has no end
	Forget      bool // that step, which has not happened
	Epoch       int  // only in this one; 0: in any

	Revived bool
	Seq     int
	Kind    StepKind
	Step    string
	Key     string // whose operation it is
}

// Queue adds the statement.
func (r *ReviveOperation) Queue(trip *roundtrip.Trip) {
	trip.Add(reviveOperation, boolean(r.Cancel), boolean(r.Forget), []byte(r.OperationID), boolean(r.Unknown), number(r.Epoch), boolean(r.Fresh))
}

// Read reads the answer.
func (r *ReviveOperation) Read(trip *roundtrip.Trip) {
	r.Revived = trip.Row(func(row *roundtrip.Row) {
		r.Seq, r.Kind, r.Step, r.Key = row.Int(), StepKind(row.Text()), row.Text(), row.Text()
	})
}

func number(n int) []byte { return strconv.AppendInt(nil, int64(n), 10) }

func boolean(b bool) []byte {
	if b {
		return []byte("true")
	}
	return []byte("false")
}

func microseconds(d time.Duration) []byte {
	return append(strconv.AppendInt(nil, d.Microseconds(), 10), " microseconds"...)
}
