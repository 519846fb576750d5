package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// Sweeper is a run that sweeps a table: it has the row of that name in idem.sweeps as long as the row has its id.
type Sweeper struct{ Name, ID string }

// Position is where a sweep is.
type Position struct {
	Part  string // as schema.table
	Block int64  // of that part
}

// TakeSweep makes a run the sweeper of a table, unless another one has given a sign of life of late, or there was a sweep.
type TakeSweep struct {
	Sweeper
	TotalPages int64
	Absence    time.Duration // without a sign of life for so long, a sweeper is gone
	Rest       time.Duration // how long after the beginning of a sweep there need not be another

	Taken    bool
	Position Position
	Pages    int64
}

// Queue adds the statement.
func (t *TakeSweep) Queue(trip *roundtrip.Trip) {
	q := db.TakeSweep{Name: t.Name, Sweeper: t.ID, TotalPages: t.TotalPages, Absence: t.Absence, Rest: t.Rest}
	q.Queue(trip)
}

// Read reads the answer.
func (t *TakeSweep) Read(trip *roundtrip.Trip) {
	var q db.TakeSweep
	q.Read(trip)
	if t.Taken = q.Found; t.Taken {
		t.Position, t.TotalPages, t.Pages = Position{q.Row.Part, q.Row.Block}, q.Row.TotalPages, q.Row.Pages
	}
}

// AdvanceSweep notes a portion.
type AdvanceSweep struct {
	Sweeper
	To                             Position
	Walked, Deleted, Kept, Skipped int64

	Advanced          bool // false: another run is the sweeper
	Pages, TotalPages int64
}

// Queue adds the statement.
func (a *AdvanceSweep) Queue(trip *roundtrip.Trip) {
	q := db.AdvanceSweep{Part: a.To.Part, Block: a.To.Block, Pages: a.Walked, Deleted: a.Deleted, Kept: a.Kept, Skipped: a.Skipped,
		Name: a.Name, Sweeper: a.ID}
	q.Queue(trip)
}

// Read reads the answer.
func (a *AdvanceSweep) Read(trip *roundtrip.Trip) {
	var q db.AdvanceSweep
	q.Read(trip)
	a.Advanced, a.Pages, a.TotalPages = q.Found, q.Row.Pages, q.Row.TotalPages
}

// HoldSweep says that a sweep waits.
type HoldSweep struct {
	Sweeper
	WaitingFor string

	Held bool // false: another run is the sweeper
}

// Queue adds the statement.
func (h *HoldSweep) Queue(trip *roundtrip.Trip) {
	q := db.HoldSweep{WaitingFor: h.WaitingFor, Name: h.Name, Sweeper: h.ID}
	q.Queue(trip)
}

// Read reads the answer.
func (h *HoldSweep) Read(trip *roundtrip.Trip) {
	var q db.HoldSweep
	q.Read(trip)
	h.Held = q.Found
}

// FinishSweep ends a sweep that has walked the whole table.
type FinishSweep struct {
	Sweeper

	Finished       bool // false: another run is the sweeper
	Pages, Deleted int64
}

// Queue adds the statement.
func (f *FinishSweep) Queue(trip *roundtrip.Trip) {
	q := db.FinishSweep{Name: f.Name, Sweeper: f.ID}
	q.Queue(trip)
}

// Read reads the answer.
func (f *FinishSweep) Read(trip *roundtrip.Trip) {
	var q db.FinishSweep
	q.Read(trip)
	f.Finished, f.Pages, f.Deleted = q.Found, q.Row.LastPages, q.Row.LastDeleted
}

// LeaveSweep leaves a sweep to the next run.
type LeaveSweep struct{ Sweeper }

// Queue adds the statement.
func (l LeaveSweep) Queue(trip *roundtrip.Trip) {
	db.LeaveSweep{Name: l.Name, Sweeper: l.ID}.Queue(trip)
}

// Read reads the answer.
func (LeaveSweep) Read(trip *roundtrip.Trip) { trip.Skip() }

// Part asks for the part of a table at which a sweep goes on: From, or the first one after it.
type Part struct {
	Relation string // as schema.table
	From     string

	Found      bool
	Name       string // as From has it
	Quoted     string // as a statement has it
	OID        int64
	Pages      int64
	TotalPages int64 // of all parts
}

// Queue adds the statement.
func (p *Part) Queue(trip *roundtrip.Trip) {
	q := db.Part{Part: p.From, Relation: p.Relation}
	q.Queue(trip)
}

// Read reads the answer.
func (p *Part) Read(trip *roundtrip.Trip) {
	var q db.Part
	q.Read(trip)
	p.Found, p.Name, p.Quoted, p.OID, p.Pages, p.TotalPages = q.Found, q.Row.Name, q.Row.Quoted, q.Row.Relation, q.Row.Pages, q.Row.TotalPages
}

// Backlog asks what standbys and vacuum have yet to do.
type Backlog struct {
	OID int64 // of a part

	Lag     int64 // bytes of WAL that the slowest standby has not replayed
	Standby string
	Hidden  int64 // standbys that this role may not see
	Dead    int64 // rows that no vacuum has removed yet
}

// Queue adds the statement.
func (b *Backlog) Queue(trip *roundtrip.Trip) {
	q := db.Backlog{OID: b.OID}
	q.Queue(trip)
}

// Read reads the answer.
func (b *Backlog) Read(trip *roundtrip.Trip) {
	var q db.Backlog
	q.Read(trip)
	b.Lag, b.Standby, b.Hidden, b.Dead = q.Row.Lag, q.Row.Standby, q.Row.Hidden, q.Row.Dead
}
