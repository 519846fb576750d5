package stats

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/statsdb"
)

// MaxCount is the number at which the counts of messages and acts stop. A count of MaxCount means
// MaxCount or more.
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

// tableNames is a text array for SQL with the tables that the migrations create.
// TestRead_ListsEveryTable checks the list.
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
	Keys         int64                 // keys with an advisory lock; a transaction has at most 32 such locks
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
	ParkedFor  time.Duration // the time since the oldest step of a parked operation began; 0 if none is parked
	OverdueFor time.Duration // how long the first due operation has been waiting for a process to resume it; 0 if none waits
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
	Waiting    int64         // messages to be published now
	Delayed    int64         // messages that are not due yet; no other field counts them
	Held       int64         // messages held back, because they or earlier ones with their key could not be published
	Oldest     time.Duration // how long the oldest message has been due without being published; 0 if there is none
	OutboxDead int64         // dead letters of the outbox
	InboxDead  int64         // dead letters of consumers
	FailingFor time.Duration // time since the first failure of the longest failing message; 0 if none fails
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
	ActResolve = Act(db.Resolve) // a person set the outcome of a step whose outcome was unknown
	ActRetry   = Act(db.Retry)   // a parked operation was resumed
)

// ActCount is how often people did an act. Counting stops when the counts of all acts add up to
// MaxCount.
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
