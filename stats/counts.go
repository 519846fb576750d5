package stats

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/statsdb"
)

// MaxCount is the highest count of Messages and Acts. A count of MaxCount means that there are at
// least as many.
const MaxCount = 10_000

// Table is the size of a table. The partitions of a table are added up.
type Table struct {
	Name       string
	HeapBytes  int64
	IndexBytes int64
	OtherBytes int64 // TOAST, the free space map and the visibility map
	LiveRows   int64 // an estimate
	DeadRows   int64 // not vacuumed yet, an estimate
}

// tableNames are the tables that the migrations create, as an array of SQL.
// TestRead_ListsEveryTable checks them.
const tableNames = "{audit,dead_letters,delayed,inbox,leases,operations,outbox,published,records,relay_topics,relays,signals,steps,sweeps}"

func newTables(rows []statsdb.TablesRow) []Table {
	tables := make([]Table, len(rows))
	for i, row := range rows {
		tables[i] = Table{
			Name: row.Name, HeapBytes: row.HeapBytes, IndexBytes: row.IndexBytes, OtherBytes: row.TotalBytes - row.HeapBytes - row.IndexBytes,
			LiveRows: row.LiveRows, DeadRows: row.DeadRows,
		}
	}
	return tables
}

// InFlight counts the open transactions that have claimed keys.
type InFlight struct {
	Transactions int64
	Keys         int64                 // keys that are held by an advisory lock, of which a transaction has at most 32
	Oldest       Figure[time.Duration] // the age of the oldest transaction; 0 if there is none
}

func newInFlight(row statsdb.InFlightRow) InFlight {
	f := InFlight{Transactions: row.Transactions, Keys: row.Keys}
	switch oldest := durationOf(row.Oldest); {
	case row.Hidden == 0:
		f.Oldest = exact(oldest)
	case row.Hidden < row.Transactions:
		f.Oldest = estimate(oldest, "at least: some sessions belong to other roles (pg_read_all_stats shows them)")
	default:
		f.Oldest = unknown[time.Duration]("the sessions belong to other roles (pg_read_all_stats shows them)")
	}
	return f
}

// Operations counts the unfinished operations.
type Operations struct {
	Running    int64
	Parked     int64
	ParkedFor  time.Duration // the age of the oldest step at which an operation is parked; 0 if none is parked
	OverdueFor time.Duration // how long ago a running operation without a process was due; 0 if there is none
}

func newOperations(row statsdb.OperationsRow, err error) (Figure[Operations], error) {
	if err != nil {
		return unknownBecause[Operations](err, "idem.operations or idem.leases")
	}
	return exact(Operations{
		Running: row.Running, Parked: row.Parked,
		ParkedFor: durationOf(row.ParkedFor), OverdueFor: durationOf(row.Overdue),
	}), nil
}

// Messages counts the messages of the outbox and of consumers. Each count stops at MaxCount.
type Messages struct {
	Waiting    int64         // to be published now
	Delayed    int64         // not due yet; no other field counts them
	Held       int64         // held back, because the message or one before it with the same key could not be published
	Oldest     time.Duration // how long the oldest message could have been published; 0 if there is none
	OutboxDead int64         // dead letters of the outbox
	InboxDead  int64         // dead letters of consumers
	FailingFor time.Duration // since the first failure of the message that has been failing for longest; 0 if none fails
}

func newMessages(row statsdb.MessagesRow, err error) (Figure[Messages], error) {
	if err != nil {
		return unknownBecause[Messages](err, "idem.outbox, idem.delayed, idem.inbox or idem.dead_letters")
	}
	return exact(Messages{
		Waiting: min(row.Waiting+row.Due, MaxCount), Delayed: row.Delayed, Held: row.Held, Oldest: max(durationOf(row.Oldest), 0),
		OutboxDead: row.OutboxDead, InboxDead: row.InboxDead, FailingFor: max(durationOf(row.FailingFor), 0),
	}), nil
}

// Act is something that a person does to a record, an operation or a message.
type Act string

const (
	ActCancel  = Act(db.Cancel)  // an operation was canceled
	ActDrop    = Act(db.Drop)    // a dead letter was deleted
	ActEvict   = Act(db.Evict)   // a record was deleted
	ActForget  = Act(db.Forget)  // a relay was removed
	ActRedrive = Act(db.Redrive) // a dead letter is tried again
	ActResolve = Act(db.Resolve) // the outcome of a step in doubt was set
	ActRetry   = Act(db.Retry)   // a parked operation was resumed
)

// ActCount is how often people did an act. The counts of all acts together stop at MaxCount.
type ActCount struct {
	Act   Act
	Count int64
}

func newActs(rows []statsdb.ActsRow, err error) (Figure[[]ActCount], error) {
	if err != nil {
		return unknownBecause[[]ActCount](err, "idem.audit")
	}
	counts := map[Act]int64{}
	for _, row := range rows {
		counts[Act(row.Act)] = row.Count
	}
	var all []ActCount
	for _, act := range []Act{ActCancel, ActDrop, ActEvict, ActForget, ActRedrive, ActResolve, ActRetry} {
		all = append(all, ActCount{Act: act, Count: counts[act]})
	}
	return exact(all), nil
}
