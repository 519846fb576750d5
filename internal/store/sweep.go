package store

import (
	"strconv"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Sweeper is a run that sweeps a table: it has the row of that name in idem.sweeps as long as the row has its id.
type Sweeper struct{ Name, ID string }

func (s Sweeper) name() []byte { return []byte(s.Name) }
func (s Sweeper) id() []byte   { return []byte(s.ID) }

// Position is where a sweep is.
type Position struct {
	Part  string // as schema.table
	Block int64  // of that part
}

// TakeSweep makes a run the sweeper of a table, unless another one has given a sign of life of late, or there was a sweep.
type TakeSweep struct {
	Sweeper
	TotalPages int64
	Absence    string // an interval: without a sign of life for so long, a sweeper is gone
	Rest       string // an interval: how long after the beginning of a sweep there need not be another

	Taken    bool
	Position Position
	Pages    int64
}

// Queue adds the statement.
func (t *TakeSweep) Queue(trip *roundtrip.Trip) {
	trip.Add(takeSweep, t.name(), t.id(), integer(t.TotalPages), []byte(t.Absence), []byte(t.Rest))
}

// Read reads the answer.
func (t *TakeSweep) Read(trip *roundtrip.Trip) {
	t.Taken = trip.Row(func(row *roundtrip.Row) {
		t.Position = Position{row.Text(), int64(row.Int())}
		t.TotalPages, t.Pages = int64(row.Int()), int64(row.Int())
	})
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
	trip.Add(advanceSweep, []byte(a.To.Part), integer(a.To.Block), integer(a.Walked), integer(a.Deleted), integer(a.Kept),
		integer(a.Skipped), a.name(), a.id())
}

// Read reads the answer.
func (a *AdvanceSweep) Read(trip *roundtrip.Trip) {
	a.Advanced = trip.Row(func(row *roundtrip.Row) { a.Pages, a.TotalPages = int64(row.Int()), int64(row.Int()) })
}

// HoldSweep says that a sweep waits.
type HoldSweep struct {
	Sweeper
	WaitingFor string

	Held bool // false: another run is the sweeper
}

// Queue adds the statement.
func (h *HoldSweep) Queue(trip *roundtrip.Trip) {
	trip.Add(holdSweep, []byte(h.WaitingFor), h.name(), h.id())
}

// Read reads the answer.
func (h *HoldSweep) Read(trip *roundtrip.Trip) {
	h.Held = trip.Row(func(row *roundtrip.Row) { row.Skip() })
}

// FinishSweep ends a sweep that has walked the whole table.
type FinishSweep struct {
	Sweeper

	Finished       bool // false: another run is the sweeper
	Pages, Deleted int64
}

// Queue adds the statement.
func (f *FinishSweep) Queue(trip *roundtrip.Trip) { trip.Add(finishSweep, f.name(), f.id()) }

// Read reads the answer.
func (f *FinishSweep) Read(trip *roundtrip.Trip) {
	f.Finished = trip.Row(func(row *roundtrip.Row) { f.Pages, f.Deleted = int64(row.Int()), int64(row.Int()) })
}

// LeaveSweep leaves a sweep to the next run.
type LeaveSweep struct{ Sweeper }

// Queue adds the statement.
func (l LeaveSweep) Queue(trip *roundtrip.Trip) { trip.Add(leaveSweep, l.name(), l.id()) }

// Read reads the answer.
func (LeaveSweep) Read(trip *roundtrip.Trip) { trip.Skip() }

// LimitPortion bounds what the transaction of a portion may do to others. The limits are settings: a number of milliseconds.
type LimitPortion struct{ LockLimit, WorkLimit, IdleLimit string }

// Queue adds the statement.
func (l LimitPortion) Queue(trip *roundtrip.Trip) {
	trip.Add(limitPortion, []byte(l.LockLimit), []byte(l.WorkLimit), []byte(l.IdleLimit))
}

// Read reads the answer.
func (LimitPortion) Read(trip *roundtrip.Trip) { trip.Skip() }

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
func (p *Part) Queue(trip *roundtrip.Trip) { trip.Add(part, []byte(p.From), []byte(p.Relation)) }

// Read reads the answer.
func (p *Part) Read(trip *roundtrip.Trip) {
	p.Found = trip.Row(func(row *roundtrip.Row) {
		p.Name, p.Quoted, p.OID = row.Text(), row.Text(), int64(row.Int())
		p.Pages, p.TotalPages = int64(row.Int()), int64(row.Int())
	})
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
func (b *Backlog) Queue(trip *roundtrip.Trip) { trip.Add(backlog, integer(b.OID)) }

// Read reads the answer.
func (b *Backlog) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) {
		b.Lag, b.Standby, b.Hidden, b.Dead = int64(row.Int()), row.Text(), int64(row.Int()), int64(row.Int())
	})
}

func integer(n int64) []byte { return strconv.AppendInt(nil, n, 10) }
