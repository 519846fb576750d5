package doctor

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Options configure Examine, Only and Verify.
type Options struct {
	// The role whose privileges and settings are examined. The default is the role of the
	// connection.
	Role string
	Scan bool             // scan whole tables, however large they are
	Now  func() time.Time // the local clock; default time.Now

	SealKeys []string      // IDs of the seal keys that the processes have
	Against  *pgxpool.Pool // the database that Verify compares with; may be nil

	Limits Limits
}

// Limits are the thresholds of findings. A zero field gets the default of withDefaults.
type Limits struct {
	OldestServer     int           // the oldest supported server_version_num
	OldTransaction   time.Duration // age of a transaction that delays vacuum or holds keys
	OldXmin          int64         // how many transactions a standby or slot may lag behind
	ClockDifference  time.Duration
	ConnectionsShare float64 // used connections as a share of the limit
	LocksShare       float64 // locks as a share of the size of the lock table
	DeadShare        float64 // dead rows as a share of live rows
	DeadRows         int64   // with fewer dead rows DeadShare is not applied
	BloatedSize      int64   // in bytes; a smaller table is not checked for bloat
	PurgeLag         time.Duration
	OldMessage       time.Duration // age of an unpublished message
	OldFailure       time.Duration // for how long a consumer may fail to handle a message
	ScanUpTo         int64         // in bytes; a larger table is scanned only if Options.Scan is set
	Statement        time.Duration // statement timeout of a check
}

// withDefaults sets the fields that are zero. The thresholds are high: a finding has to be worth a
// person's time, and a threshold that a healthy server reaches now and then teaches people to
// ignore the doctor.
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

// set assigns standard to a value that is zero.
func set[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}
