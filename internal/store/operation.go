package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
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

// The room of a HoldKey. A record that is held has to expire some day, because it has to have a moment; no call outlives that
// one.
const (
	Held = "1000 years"
	Free = "0"
)

// HoldKey makes the record that the transaction has claimed one of an operation. Where there is none, the server answers with
// the SQLSTATE Gone.
type HoldKey struct {
	Key  *Key
	Room string // Held or Free

	Done bool
}

// Queue adds the statement.
func (h *HoldKey) Queue(trip *roundtrip.Trip) {
	k := h.Key
	q := db.HoldKey{Scope: k.scope, Key: k.key, ExecutionID: k.ExecutionID, Room: h.Room}
	q.Queue(trip)
}

// Read reads the answer.
func (h *HoldKey) Read(trip *roundtrip.Trip) {
	var q db.HoldKey
	q.Read(trip)
	h.Done = q.Found
}

// Endless is the pause of an operation that waits for a child: the child's end wakes it.
const Endless = 100 * 365 * 24 * time.Hour

// At is where an operation is after a commit.
type At struct {
	Kind  StepKind
	Step  string
	Seq   int           // 0 if no step is under way, also where nothing of the step was sent
	Pause time.Duration // until a process has to look at it
	Owner int           // 0 if it is for the next process
	Tries int
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
	k, at := b.Key, &b.At
	q := db.BeginOperation{OperationID: k.ExecutionID, Scope: k.scope, Key: k.key, Hash: k.hash[:], Name: b.Name, TTL: b.TTL.Microseconds(),
		Input: b.Input, Parent: orNull(b.Parent), Owner: orNullNumber(at.Owner), Kind: string(at.Kind), Step: at.Step, Seq: at.Seq, Pause: at.Pause}
	if !b.ClaimedAt.IsZero() {
		claimed := b.ClaimedAt.Sub(time.Unix(0, 0))
		q.Claimed = &claimed
	}
	q.Queue(trip)
}

// Read reads the answer.
func (b *BeginOperation) Read(trip *roundtrip.Trip) {
	trip.Skip()
}

// AdvanceOperation is in every later commit of an operation. Where another process has taken it up, the server answers with the
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
	at := &a.At
	q := db.AdvanceOperation{OperationID: a.OperationID, Owner: orNullNumber(at.Owner), State: string(a.State), Undoing: a.Undoing,
		Kind: string(at.Kind), Step: at.Step, Seq: at.Seq, Pause: at.Pause, Tries: at.Tries, Epoch: a.Epoch, Cancelled: a.Cancelled}
	q.Queue(trip)
}

// Read reads the answer.
func (a *AdvanceOperation) Read(trip *roundtrip.Trip) {
	var q db.AdvanceOperation
	q.Read(trip)
	a.Advanced = q.Found
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
	Deaths    int // of processes that worked on it, those that no process has noticed yet left out
	Reason    string
	Parent    string // the operation that awaits it; empty if it is no child
	Since     time.Time
	WakeAt    time.Time // zero if it waits for a child
	LoadedAt  time.Time
}

// Queue adds the statement.
func (s *ShowOperation) Queue(trip *roundtrip.Trip) {
	q := db.ShowOperation{OperationID: s.OperationID}
	q.Queue(trip)
}

// Read reads the answer.
func (s *ShowOperation) Read(trip *roundtrip.Trip) {
	var q db.ShowOperation
	q.Read(trip)
	row := &q.Row
	s.Found, s.Scope, s.Name, s.State, s.Epoch = q.Found, row.Scope, row.Name, OperationState(row.State), row.Epoch
	copy(s.Hash[:], row.Hash)
	s.Undoing, s.Cancelled, s.Kind, s.Step = row.Undoing, row.Cancelled, StepKind(row.Kind), row.Step
	s.Attempts, s.Deaths, s.Reason, s.Parent = row.Attempts, row.Deaths, row.Reason, row.Parent
	s.Since, s.WakeAt, s.LoadedAt = row.Since, row.WakeAt, row.LoadedAt
	if s.Kind == ChildStep && s.WakeAt.Sub(s.LoadedAt) > Endless/2 {
		s.WakeAt = time.Time{}
	}
	if s.Kind == Started {
		s.Kind = ""
	}
}

// MayBeSuspect reports whether the operation is one, or will be when it turns out that its owner is gone.
func (s *ShowOperation) MayBeSuspect() bool {
	return s.Found && s.State == OperationRunning && s.Deaths >= Suspected-1
}

// ParkOperation stops an operation until a person has seen to it.
type ParkOperation struct {
	OperationID string
	Epoch       int
	Reason      string
	Step        string
	Unread      int  // the place of that step, if the function fails in front of it, and it is on record
	Unbacked    bool // that step is a call, and nothing takes it back
	Unfit       bool // that step is a call, and the value that a person has given for it does not fit
	Undecoded   bool // that step awaits a signal, and what was sent does not decode

	Parked bool
}

// Queue adds the statement.
func (p *ParkOperation) Queue(trip *roundtrip.Trip) {
	q := db.ParkOperation{Reason: p.Reason, Step: p.Step, Unread: orNullNumber(p.Unread), Unbacked: p.Unbacked, Unfit: p.Unfit, Undecoded: p.Undecoded, OperationID: p.OperationID, Epoch: p.Epoch}
	q.Queue(trip)
}

// Read reads the answer.
func (p *ParkOperation) Read(trip *roundtrip.Trip) {
	var q db.ParkOperation
	q.Read(trip)
	p.Parked = q.Affected > 0
}

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
	q := db.ReviveOperation{Cancel: r.Cancel, Forget: r.Forget, OperationID: r.OperationID, Unknown: r.Unknown, Epoch: r.Epoch, Fresh: r.Fresh}
	q.Queue(trip)
}

// Read reads the answer.
func (r *ReviveOperation) Read(trip *roundtrip.Trip) {
	var q db.ReviveOperation
	q.Read(trip)
	r.Revived, r.Seq, r.Kind, r.Step, r.Key = q.Found, q.Row.Seq, StepKind(q.Row.Kind), q.Row.Step, q.Row.Key
}
