package vitals

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/vitals/db"
)

// DB is a pool, a connection or a transaction.
type DB = db.DBTX

// Vitals are the figures of one moment.
type Vitals struct {
	At time.Time `json:"at"` // by the clock of the database

	Records       Figure[int64]         `json:"records"` // expired ones among them
	Expired       Figure[int64]         `json:"expired"`
	OldestExpired Figure[time.Duration] `json:"oldest_expired"` // for how long the oldest one has been expired; 0 if there is none
	DeadRows      Figure[int64]         `json:"dead_rows"`      // not vacuumed yet

	HeapBytes  int64 `json:"heap_bytes"`
	IndexBytes int64 `json:"index_bytes"`
	OtherBytes int64 `json:"other_bytes"` // large bodies (TOAST), and the maps of the table

	AnalyzedAt time.Time `json:"analyzed_at,omitzero"` // zero if never, as far as statistics go back
	VacuumedAt time.Time `json:"vacuumed_at,omitzero"`

	Tables []Table `json:"tables"` // all of the schema, in the order of their names

	InFlight   InFlight           `json:"in_flight"`
	Operations Figure[Operations] `json:"operations"`
	Messages   Figure[Messages]   `json:"messages"`
	Acts       Figure[[]Acts]     `json:"acts"` // of people in the last day: every kind of act is there

	Sweeps     Figure[[]Sweep]       `json:"sweeps"`      // what is purged, and how far
	PurgeLag   Figure[time.Duration] `json:"purge_lag"`   // since the last whole sweep of the records began; if there was none, see Note
	PurgeSpeed Figure[float64]       `json:"purge_speed"` // records deleted a second, by the sweep under way or the last one
}

// Table is a table of the schema, with all its partitions.
type Table struct {
	Name       string `json:"name"`
	HeapBytes  int64  `json:"heap_bytes"`
	IndexBytes int64  `json:"index_bytes"`
	OtherBytes int64  `json:"other_bytes"`
	LiveRows   int64  `json:"live_rows"` // as counted since the last vacuum, or analyze
	DeadRows   int64  `json:"dead_rows"` // not vacuumed yet
}

// tables are those of the migrations. TestVitalsKnowEveryTable compares them.
const tables = "{audit,dead_letters,delayed,inbox,leases,operations,outbox,published,records,relay_topics,relays,signals,steps,sweeps}"

// Acts are how often people did something.
type Acts struct {
	Act   string `json:"act"`
	Times int64  `json:"times"` // up to MaxMessages, all acts together
}

// acts are those that there are.
var acts = []store.Act{store.Cancel, store.Drop, store.Evict, store.Forget, store.Redrive, store.Resolve, store.Retry}

// InFlight are the transactions that have claimed keys and are not over.
type InFlight struct {
	Transactions int64                 `json:"transactions"`
	Keys         int64                 `json:"keys"`   // by their advisory locks, of which a transaction has 32 at most
	Oldest       Figure[time.Duration] `json:"oldest"` // how long the oldest transaction has been open; 0 if there is none
}

// Operations are those that are not over.
type Operations struct {
	Running   int64         `json:"running"`
	Parked    int64         `json:"parked"`
	ParkedFor time.Duration `json:"parked_for"` // since the earliest step was begun at which one is parked; 0 if none is
	Late      time.Duration `json:"late"`       // for how long one has been due that no process works on; 0 if there is none
}

// MaxMessages is how far messages are counted: a count of MaxMessages says that there are at least so many.
const MaxMessages = 10_000

// Messages are those that are not published or handled yet, or never will be by themselves.
type Messages struct {
	Waiting     int64         `json:"waiting"`     // to be published
	Delayed     int64         `json:"delayed"`     // not to be published yet, and in no other figure
	Held        int64         `json:"held"`        // back, because they or one before them could not be published
	Oldest      time.Duration `json:"oldest"`      // for how long the oldest one could have been published; 0 if there is none
	Unpublished int64         `json:"unpublished"` // dead letters of the outbox
	Unhandled   int64         `json:"unhandled"`   // dead letters of consumers
	FailingFor  time.Duration `json:"failing_for"` // since the message failed first that a consumer has tried for longest; 0 if there is none
}

// Sweep is how far a table is swept.
type Sweep struct {
	Name         string        `json:"name"`
	Under        bool          `json:"under_way"`
	WaitingFor   string        `json:"waiting_for,omitempty"`
	Pages        int64         `json:"pages"`
	TotalPages   int64         `json:"total_pages"`
	Deleted      int64         `json:"deleted"`
	Took         time.Duration `json:"took"`           // so far
	Silent       time.Duration `json:"silent"`         // since the last sign of life of the purge; 0 if none sweeps
	Began        time.Time     `json:"began,omitzero"` // of the one under way
	LastBegan    time.Time     `json:"last_began,omitzero"`
	LastEnded    time.Time     `json:"last_ended,omitzero"`
	LastDeleted  int64         `json:"last_deleted"`
	DeletedTotal int64         `json:"deleted_total"`
}

// longSilence is from when on a process that sweeps is taken to be gone: a portion and a pause take seconds.
const longSilence = time.Minute

// Live reports whether a process is at the sweep that is under way. Another one goes on where it was left.
func (s *Sweep) Live() bool { return s.Under && s.Silent > 0 && s.Silent <= longSilence }

// ErrNoSchema says that the database has no table of records.
var ErrNoSchema = errors.New("vitals: there is no table idem.records in this database: run the migrations of package migrations")

// Read reads the figures by seven statements, none of which reads a record. If on is a transaction of a role that may not read
// idem.sweeps, idem.operations, the tables of messages or idem.audit, it is aborted afterwards.
func Read(ctx context.Context, on DB) (Vitals, error) {
	parts, err := db.Parts(ctx, on)
	if err != nil {
		return Vitals{}, err
	}
	if len(parts) == 0 {
		return Vitals{}, ErrNoSchema
	}
	flight, err := db.InFlight(ctx, on)
	if err != nil {
		return Vitals{}, err
	}
	sized, err := db.Tables(ctx, on, tables)
	if err != nil {
		return Vitals{}, err
	}
	v := Vitals{At: moment(parts[0].At), InFlight: inFlight(flight), Tables: tablesOf(sized)}
	sweeps, err := db.Sweeps(ctx, on)
	if v.Sweeps, err = sweepsOf(sweeps, v.At, err); err != nil {
		return Vitals{}, err
	}
	if v.Operations = unknown[Operations](v.Sweeps.Note); v.Sweeps.Known() {
		operations, err := db.Operations(ctx, on)
		if v.Operations, err = operationsOf(operations, err); err != nil {
			return Vitals{}, err
		}
	}
	if v.Messages = unknown[Messages](v.Operations.Note); v.Operations.Known() {
		messages, err := db.Messages(ctx, on, MaxMessages)
		if v.Messages, err = messagesOf(messages, err); err != nil {
			return Vitals{}, err
		}
	}
	if v.Acts = unknown[[]Acts](v.Messages.Note); v.Messages.Known() {
		done, err := db.Acts(ctx, on, MaxMessages)
		if v.Acts, err = actsOf(done, err); err != nil {
			return Vitals{}, err
		}
	}
	v.measure(parts)
	v.rate()
	return v, nil
}

func tablesOf(rows []db.TablesRow) []Table {
	all := []Table{}
	for _, row := range rows {
		all = append(all, Table{
			Name: row.Name, HeapBytes: row.HeapBytes, IndexBytes: row.IndexBytes, OtherBytes: row.TotalBytes - row.HeapBytes - row.IndexBytes,
			LiveRows: row.LiveRows, DeadRows: row.DeadRows,
		})
	}
	return all
}

func inFlight(row db.InFlightRow) InFlight {
	flight := InFlight{Transactions: row.Transactions, Keys: row.Keys}
	switch oldest := time.Duration(row.Oldest) * time.Microsecond; {
	case row.Hidden == 0:
		flight.Oldest = exact(oldest)
	case row.Hidden < row.Transactions:
		flight.Oldest = estimate(oldest, "at least: some of the sessions are of other roles (pg_read_all_stats shows them)")
	default:
		flight.Oldest = unknown[time.Duration]("the sessions are of other roles: pg_read_all_stats shows them")
	}
	return flight
}

// Lag is how long ago the last whole sweep began, or, if there was none, the one under way. It is 0 if there is neither.
func (s *Sweep) Lag(at time.Time) time.Duration {
	if s.LastBegan.IsZero() && s.Began.IsZero() {
		return 0
	}
	began := s.LastBegan
	if began.IsZero() {
		began = s.Began
	}
	return max(at.Sub(began), 0)
}

// sweepsOf makes figures of what is known of the sweeps. That they cannot be read is no error of the reader's.
func sweepsOf(rows []db.SweepsRow, at time.Time, err error) (Figure[[]Sweep], error) {
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == "42501":
		return unknown[[]Sweep]("this role may not read idem.sweeps"), nil
	case errors.As(err, &refused) && (refused.Code == "42P01" || refused.Code == "42703"):
		return unknown[[]Sweep]("there is no such table idem.sweeps: run the migrations of package migrations"), nil
	case err != nil:
		return Figure[[]Sweep]{}, err
	}
	sweeps := []Sweep{}
	for _, row := range rows {
		sweeps = append(sweeps, sweepOf(row, at))
	}
	return exact(sweeps), nil
}

// operationsOf makes a figure of what is known of the operations. That they cannot be read is no error of the reader's.
func operationsOf(row db.OperationsRow, err error) (Figure[Operations], error) {
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == "42501":
		return unknown[Operations]("this role may not read idem.operations and idem.leases"), nil
	case errors.As(err, &refused) && (refused.Code == "42P01" || refused.Code == "42703"):
		return unknown[Operations]("there is no such table idem.operations: run the migrations of package migrations"), nil
	case err != nil:
		return Figure[Operations]{}, err
	}
	return exact(Operations{
		Running: row.Running, Parked: row.Parked,
		ParkedFor: time.Duration(row.ParkedFor) * time.Microsecond, Late: time.Duration(row.Late) * time.Microsecond,
	}), nil
}

// messagesOf makes a figure of what is known of the messages. That they cannot be read is no error of the reader's.
func messagesOf(row db.MessagesRow, err error) (Figure[Messages], error) {
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == "42501":
		return unknown[Messages]("this role may not read idem.outbox, idem.inbox and idem.dead_letters"), nil
	case errors.As(err, &refused) && (refused.Code == "42P01" || refused.Code == "42703"):
		return unknown[Messages]("there are no such tables of messages: run the migrations of package migrations"), nil
	case err != nil:
		return Figure[Messages]{}, err
	}
	return exact(Messages{
		Waiting: min(row.Waiting+row.Due, MaxMessages), Delayed: row.Delayed, Held: row.Held, Oldest: max(time.Duration(row.Oldest)*time.Microsecond, 0),
		Unpublished: row.Unpublished, Unhandled: row.Unhandled, FailingFor: max(time.Duration(row.FailingFor)*time.Microsecond, 0),
	}), nil
}

// actsOf makes a figure of what people did. That it cannot be read is no error of the reader's.
func actsOf(rows []db.ActsRow, err error) (Figure[[]Acts], error) {
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == "42501":
		return unknown[[]Acts]("this role may not read idem.audit"), nil
	case errors.As(err, &refused) && (refused.Code == "42P01" || refused.Code == "42703"):
		return unknown[[]Acts]("there is no such table idem.audit: run the migrations of package migrations"), nil
	case err != nil:
		return Figure[[]Acts]{}, err
	}
	times := map[string]int64{}
	for _, row := range rows {
		times[row.Act] = row.Times
	}
	var all []Acts
	for _, act := range acts {
		all = append(all, Acts{string(act), times[string(act)]})
	}
	return exact(all), nil
}

func sweepOf(row db.SweepsRow, at time.Time) Sweep {
	s := Sweep{
		Name: row.Name, Under: row.StartedAt != 0, WaitingFor: row.WaitingFor,
		Pages: row.Pages, TotalPages: row.TotalPages, Deleted: row.Deleted,
		Began: moment(row.StartedAt), LastBegan: moment(row.LastStartedAt), LastEnded: moment(row.LastFinishedAt),
		LastDeleted: row.LastDeleted, DeletedTotal: row.DeletedTotal,
	}
	if s.Under && row.ProgressedAt > row.StartedAt {
		s.Took = moment(row.ProgressedAt).Sub(moment(row.StartedAt))
	}
	if row.SeenAt != 0 {
		s.Silent = max(at.Sub(moment(row.SeenAt)), 0)
	}
	return s
}

// rate tells how the purge of the records keeps up.
func (v *Vitals) rate() {
	if !v.Sweeps.Known() {
		v.PurgeLag, v.PurgeSpeed = unknown[time.Duration](v.Sweeps.Note), unknown[float64](v.Sweeps.Note)
		return
	}
	s := v.sweepOfRecords()
	switch {
	case !s.LastBegan.IsZero():
		v.PurgeLag = exact(max(v.At.Sub(s.LastBegan), 0))
	case v.OldestExpired.Known():
		v.PurgeLag = estimate(v.OldestExpired.Value, "there was no whole sweep yet: how long the oldest expired record has been there")
	default:
		v.PurgeLag = unknown[time.Duration]("there was no whole sweep yet, and " + v.OldestExpired.Note)
	}
	switch {
	case s.Under && s.Took > 0:
		v.PurgeSpeed = exact(float64(s.Deleted) / s.Took.Seconds())
	case s.LastEnded.After(s.LastBegan):
		v.PurgeSpeed = exact(float64(s.LastDeleted) / s.LastEnded.Sub(s.LastBegan).Seconds())
	default:
		v.PurgeSpeed = unknown[float64]("there was no whole sweep yet")
	}
}

func (v *Vitals) sweepOfRecords() Sweep {
	for _, s := range v.Sweeps.Value {
		if s.Name == "records" {
			return s
		}
	}
	return Sweep{}
}

// moment is a time of the database. Zero is none.
func moment(microseconds int64) time.Time {
	if microseconds == 0 {
		return time.Time{}
	}
	return time.UnixMicro(microseconds).UTC()
}
