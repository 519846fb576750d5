package vitals

import (
	"context"
	"errors"
	"time"

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

// moment is a time of the database. Zero is none.
func moment(microseconds int64) time.Time {
	if microseconds == 0 {
		return time.Time{}
	}
	return time.UnixMicro(microseconds).UTC()
}
