package doctor

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Options say what is looked for, and from where on something is too much.
type Options struct {
	Role string           // whose privileges are looked at, by default those of the role that is connected
	Scan bool             // walk the table, however large it is
	Now  func() time.Time // the clock of this machine

	SealKeys []string      // ids of the keys that are at hand
	Against  *pgxpool.Pool // the database that this one is compared with, for Verify

	Limits Limits
}

// Limits are from where on something is too much. What is zero has a default.
type Limits struct {
	OldestServer     int           // server_version_num
	OldTransaction   time.Duration // that holds back vacuum, or keys
	OldXmin          int64         // transactions that a standby or a slot may be behind
	ClockDifference  time.Duration
	ConnectionsShare float64 // of those there may be
	LocksShare       float64 // of those that the lock table has room for
	DeadShare        float64 // of dead rows to live ones
	DeadRows         int64   // below which the share does not matter
	BloatedSize      int64   // below which bloat does not matter, in bytes
	PurgeLag         time.Duration
	OldMessage       time.Duration // that waits to be published
	OldFailure       time.Duration // of a message that a consumer tries again
	ScanUpTo         int64         // size of a table that is walked without being told to, in bytes
	Statement        time.Duration // after which a statement of a check is given up
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &o.Limits
	set(&l.OldestServer, 140000)
	set(&l.OldTransaction, 5*time.Minute)
	set(&l.OldXmin, 1_000_000)
	set(&l.ClockDifference, 2*time.Second)
	set(&l.ConnectionsShare, 0.8)
	set(&l.LocksShare, 0.5)
	set(&l.DeadShare, 0.3)
	set(&l.DeadRows, 50_000)
	set(&l.BloatedSize, 64<<20)
	set(&l.PurgeLag, 24*time.Hour)
	set(&l.OldMessage, 5*time.Minute)
	set(&l.OldFailure, 15*time.Minute)
	set(&l.ScanUpTo, 64<<20)
	set(&l.Statement, 10*time.Second)
	return o
}

func set[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}
