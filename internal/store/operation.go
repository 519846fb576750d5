package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

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
	Kind   StepKind
	Step   string
	Seq    int           // 0 if no step is under way, also where nothing of the step was sent
	Pause  time.Duration // until a process has to look at it
	Owner  int           // 0 if it is for the next process
	Tries  int
	Undos  int    // of the call that is begun
	Policy string // of the call that is begun
}

// StepError is the last error of an operation: of an attempt at a step, or of a run of its function.
type StepError struct {
	Step    string // empty for the function
	Attempt int
	Text    []byte // sealed as values are
}

// orNull returns the error as parameters, all NULL where there is none.
func (e *StepError) orNull() (step *string, attempt *int, text []byte) {
	if e == nil {
		return nil, nil, nil
	}
	return &e.Step, &e.Attempt, e.Text
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
		Input: b.Input, Parent: orNull(b.Parent), Owner: orNullNumber(at.Owner), Kind: string(at.Kind), Step: at.Step, Seq: at.Seq, Pause: at.Pause,
		Undos: orNullNumber(at.Undos), Policy: orNull(at.Policy)}
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
	OperationID    string
	Epoch          int
	State          OperationState
	Undoing        bool
	Canceled       *bool // what this run knows; nil if that does not matter
	WithoutCalling bool  // the same
	At             At
	Error          *StepError // nil clears the last one

	Advanced bool
}

// Queue adds the statement.
func (a *AdvanceOperation) Queue(trip *roundtrip.Trip) {
	at := &a.At
	q := db.AdvanceOperation{OperationID: a.OperationID, Owner: orNullNumber(at.Owner), State: string(a.State), Undoing: a.Undoing,
		Kind: string(at.Kind), Step: at.Step, Seq: at.Seq, Pause: at.Pause, Tries: at.Tries, Epoch: a.Epoch, Canceled: a.Canceled, WithoutCalling: a.WithoutCalling,
		Undos: orNullNumber(at.Undos), Policy: orNull(at.Policy)}
	q.ErrorStep, q.ErrorAttempt, q.ErrorText = a.Error.orNull()
	q.Queue(trip)
}

// Read reads the answer.
func (a *AdvanceOperation) Read(trip *roundtrip.Trip) {
	var q db.AdvanceOperation
	q.Read(trip)
	a.Advanced = q.Found
}

// ShowOperation reads how far an operation is.
type ShowOperation struct {
	OperationID string

	Found   bool
	Scope   string
	Hash    [32]byte // of the request that it belongs to
	Name    string
	State   OperationState
	Epoch   int
	Undoing bool

	Canceled       bool
	WithoutCalling bool
	WithoutCode    bool
	Kind           StepKind
	Step           string
	Attempts       int
	Deaths         int // of processes that worked on it, those that no process has noticed yet left out
	Reason         string
	ReasonStep     string
	ReasonText     string
	Parent         string // the operation that awaits it; empty if it is no child
	Error          *StepError
	ErrorAt        time.Time
	ErrorNextAt    time.Time
	Since          time.Time
	WakeAt         time.Time // zero if it waits for a child
	LoadedAt       time.Time
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
	s.Undoing, s.Canceled, s.WithoutCalling, s.WithoutCode = row.Undoing, row.Canceled, row.WithoutCalling, row.WithoutCode
	s.Kind, s.Step, s.Attempts, s.Deaths, s.Parent = StepKind(row.Kind), row.Step, row.Attempts, row.Deaths, row.Parent
	s.Reason, s.ReasonStep, s.ReasonText = row.Reason, row.ReasonStep, row.ReasonText
	if s.Error = nil; row.ErrorAttempt > 0 {
		s.Error = &StepError{Step: row.ErrorStep, Attempt: row.ErrorAttempt, Text: row.ErrorText}
	}
	s.ErrorAt, s.ErrorNextAt = row.ErrorAt, row.ErrorNextAt
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

// ReleaseOperation leaves an operation to the next process, after a pause.
type ReleaseOperation struct {
	OperationID string
	Epoch       int
	Tries       int
	Pause       time.Duration
	Error       *StepError // nil leaves the last one
}

// Queue adds the statement.
func (r *ReleaseOperation) Queue(trip *roundtrip.Trip) {
	q := db.ReleaseOperation{OperationID: r.OperationID, Epoch: r.Epoch, Tries: r.Tries, Pause: r.Pause}
	q.ErrorStep, q.ErrorAttempt, q.ErrorText = r.Error.orNull()
	q.Queue(trip)
}

// Read reads the answer.
func (*ReleaseOperation) Read(trip *roundtrip.Trip) { trip.Skip() }

// NoteFailure stores the error of an attempt.
type NoteFailure struct {
	OperationID string
	Epoch       int
	Tries       int           // of the call that was begun alone
	Pause       time.Duration // until the next attempt
	Error       StepError
}

// Queue adds the statement.
func (n *NoteFailure) Queue(trip *roundtrip.Trip) {
	q := db.NoteFailure{OperationID: n.OperationID, Epoch: n.Epoch, Pause: n.Pause, Tries: n.Tries, Attempt: n.Error.Attempt, ErrorStep: n.Error.Step, ErrorText: n.Error.Text}
	q.Queue(trip)
}

// Read reads the answer.
func (*NoteFailure) Read(trip *roundtrip.Trip) { trip.Skip() }

// IsCanceled reads whether and how an operation was canceled.
type IsCanceled struct {
	OperationID string

	Canceled       bool
	WithoutCalling bool
}

// Queue adds the statement.
func (c *IsCanceled) Queue(trip *roundtrip.Trip) {
	q := db.IsCanceled{OperationID: c.OperationID}
	q.Queue(trip)
}

// Read reads the answer.
func (c *IsCanceled) Read(trip *roundtrip.Trip) {
	var q db.IsCanceled
	q.Read(trip)
	c.Canceled, c.WithoutCalling = q.Row.Canceled, q.Row.WithoutCalling
}

// ParkOperation stops an operation until a person has decided.
type ParkOperation struct {
	OperationID string
	Epoch       int
	Tries       int
	Reason      string
	Step        string
	Text        string
	Error       *StepError // nil leaves the last one

	Parked bool
}

// Queue adds the statement.
func (p *ParkOperation) Queue(trip *roundtrip.Trip) {
	q := db.ParkOperation{OperationID: p.OperationID, Epoch: p.Epoch, Tries: p.Tries, Reason: p.Reason, ReasonStep: p.Step, ReasonText: p.Text}
	q.ErrorStep, q.ErrorAttempt, q.ErrorText = p.Error.orNull()
	q.Queue(trip)
}

// Read reads the answer.
func (p *ParkOperation) Read(trip *roundtrip.Trip) {
	var q db.ParkOperation
	q.Read(trip)
	p.Parked = q.Affected > 0
}

// ReviveOperation lets a parked operation go on.
type ReviveOperation struct {
	OperationID string
	Epoch       int  // only in this one; 0: in any
	Forget      bool // the call that was begun alone is not under way any more

	Revived     bool
	Key         string // whose operation it is
	RevivedFrom int    // the epoch that it was parked in
}

// Queue adds the statement.
func (r *ReviveOperation) Queue(trip *roundtrip.Trip) {
	q := db.ReviveOperation{OperationID: r.OperationID, Epoch: r.Epoch, Forget: r.Forget}
	q.Queue(trip)
}

// Read reads the answer.
func (r *ReviveOperation) Read(trip *roundtrip.Trip) {
	var q db.ReviveOperation
	q.Read(trip)
	r.Revived, r.Key, r.RevivedFrom = q.Found, q.Row.Key, q.Row.Epoch-1
}

// CancelOperation has an operation undone.
type CancelOperation struct {
	OperationID    string
	WithoutCalling bool
	WithoutCode    bool

	Changed bool // false if it has ended, or was canceled before with the same options
	Step    string
	Key     string // whose operation it is
}

// Queue adds the statement.
func (c *CancelOperation) Queue(trip *roundtrip.Trip) {
	q := db.CancelOperation{OperationID: c.OperationID, WithoutCalling: c.WithoutCalling, WithoutCode: c.WithoutCode}
	q.Queue(trip)
}

// Read reads the answer.
func (c *CancelOperation) Read(trip *roundtrip.Trip) {
	var q db.CancelOperation
	q.Read(trip)
	c.Changed, c.Step, c.Key = q.Found, q.Row.Step, q.Row.Key
}

// IsOperation reports whether an id is that of an operation, by a query in a transaction of the caller's.
func IsOperation(ctx context.Context, in interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, id string) (bool, error) {
	var canceled, withoutCalling bool
	err := in.QueryRow(ctx, db.IsCanceledSQL, id).Scan(&canceled, &withoutCalling)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
