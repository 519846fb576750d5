package idemotel

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem/purge"
	"github.com/idem-go/idem/stats"
)

// instruments holds the instruments of Watch.
type instruments struct {
	all []metric.Observable

	records, rows, dead, size, transactions, keys, waiting, operations metric.Int64ObservableGauge
	expiredAge, oldest, lag, speed, parkedFor, late                    metric.Float64ObservableGauge
	unpublished, delayedOnes, heldBack, letters, acts                  metric.Int64ObservableGauge
	unpublishedAge, failingAge                                         metric.Float64ObservableGauge
	deleted                                                            metric.Int64ObservableCounter

	connections      metric.Int64ObservableUpDownCounter
	maxConnections   metric.Int64ObservableUpDownCounter
	timeouts, queued metric.Int64ObservableCounter
}

// newInstruments creates the instruments of Watch. The package documentation lists them, and a test
// compares names and units.
func newInstruments(meter metric.Meter) (*instruments, error) {
	b := builder{meter: meter}
	i := &instruments{
		records:        b.count("idem.records", "{record}", "Records in the table, an estimate."),
		rows:           b.count("idem.rows.live", "{row}", "Live rows of a table, an estimate."),
		dead:           b.count("idem.rows.dead", "{row}", "Dead rows of a table, not vacuumed yet, an estimate."),
		size:           b.count("idem.storage.size", "By", "Size of a table and its indexes."),
		transactions:   b.count("idem.transactions", "{transaction}", "Open transactions that have claimed a key."),
		keys:           b.count("idem.keys.held", "{key}", "Keys that have an advisory lock."),
		waiting:        b.count("idem.purge.waiting", "{sweep}", "Sweeps of the purge that wait, by reason."),
		operations:     b.count("idem.operations", "{operation}", "Operations that have not ended, by state."),
		parkedFor:      b.amount("idem.operations.parked.age", "s", "Time since the earliest step began at which an operation is parked."),
		late:           b.amount("idem.operations.late", "s", "Longest time for which an operation has been due without a process working on it."),
		unpublished:    b.count("idem.outbox.waiting", "{message}", "Messages that wait to be published, up to 10,000."),
		delayedOnes:    b.count("idem.outbox.delayed", "{message}", "Messages that are not due yet, up to 10,000."),
		heldBack:       b.count("idem.outbox.held", "{message}", "Messages that could not be published, and those behind them, up to 10,000."),
		letters:        b.count("idem.dead_letters", "{message}", "Messages that could not be published or handled, by side, up to 10,000 each."),
		acts:           b.count("idem.acts", "{act}", "Changes by people to records, operations and messages in the last day, by act, up to 10,000."),
		unpublishedAge: b.amount("idem.outbox.oldest.age", "s", "Age of the oldest unpublished message that is due."),
		failingAge:     b.amount("idem.inbox.failing.age", "s", "Longest time that a message has been failing."),
		expiredAge:     b.amount("idem.records.expired.age", "s", "Time since the oldest expired record expired, an estimate."),
		oldest:         b.amount("idem.transactions.age", "s", "Age of the oldest open transaction that has claimed a key."),
		lag:            b.amount("idem.purge.lag", "s", "Time since the last complete sweep of a table began."),
		speed:          b.amount("idem.purge.speed", "{record}/s", "Records that the purge deletes each second."),
		deleted:        b.total("idem.purge.deleted", "{row}", "Rows of a table that the purge deleted."),
		connections: b.sum("db.client.connection.count", "{connection}",
			"The number of connections that are currently in state described by the state attribute."),
		maxConnections: b.sum("db.client.connection.max", "{connection}", "The maximum number of open connections allowed."),
		timeouts: b.total("db.client.connection.timeouts", "{timeout}",
			"The number of connection timeouts that have occurred trying to obtain a connection from the pool."),
		queued: b.total("idem.pool.waits", "{wait}", "Callers that had to wait for a connection of the pool."),
	}
	i.all = b.all
	return i, b.err
}

// builder creates instruments and keeps the first error.
type builder struct {
	meter metric.Meter
	all   []metric.Observable
	err   error
}

func (b *builder) add(o metric.Observable, err error) {
	b.all = append(b.all, o)
	if b.err == nil {
		b.err = err
	}
}

func (b *builder) count(name, unit, text string) metric.Int64ObservableGauge {
	o, err := b.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
	b.add(o, err)
	return o
}

func (b *builder) amount(name, unit, text string) metric.Float64ObservableGauge {
	o, err := b.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
	b.add(o, err)
	return o
}

func (b *builder) total(name, unit, text string) metric.Int64ObservableCounter {
	o, err := b.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	b.add(o, err)
	return o
}

func (b *builder) sum(name, unit, text string) metric.Int64ObservableUpDownCounter {
	o, err := b.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	b.add(o, err)
	return o
}

func label(key, value string) metric.ObserveOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
}

var (
	live     = label("idem.record.state", "live")
	expired  = label("idem.record.state", "expired")
	either   = label("idem.record.state", "unknown")
	running  = label("idem.operation.state", "running")
	parked   = label("idem.operation.state", "parked")
	outgoing = label("idem.side", "outbox")
	incoming = label("idem.side", "inbox")
)

// show observes all figures that are known, and leaves out the others.
func (i *instruments) show(to metric.Observer, v *stats.Stats) {
	if v.Records.Expired.Known() {
		to.ObserveInt64(i.records, max(v.Records.Count.Value-v.Records.Expired.Value, 0), live)
		to.ObserveInt64(i.records, v.Records.Expired.Value, expired)
	} else {
		to.ObserveInt64(i.records, v.Records.Count.Value, either)
	}
	for _, t := range v.Tables {
		of := ofTable(t.Name)
		to.ObserveInt64(i.rows, t.LiveRows, of.alone)
		to.ObserveInt64(i.dead, t.DeadRows, of.alone)
		to.ObserveInt64(i.size, t.HeapBytes, of.heap)
		to.ObserveInt64(i.size, t.IndexBytes, of.index)
		to.ObserveInt64(i.size, t.OtherBytes, of.other)
	}
	to.ObserveInt64(i.transactions, v.InFlight.Transactions)
	to.ObserveInt64(i.keys, v.InFlight.Keys)
	if v.Records.OldestExpired.Known() {
		to.ObserveFloat64(i.expiredAge, v.Records.OldestExpired.Value.Seconds())
	}
	if v.InFlight.Oldest.Known() {
		to.ObserveFloat64(i.oldest, v.InFlight.Oldest.Value.Seconds())
	}
	if v.Purge.Lag.Known() {
		to.ObserveFloat64(i.lag, v.Purge.Lag.Value.Seconds(), ofTable("records").alone)
	}
	if v.Purge.Rate.Known() {
		to.ObserveFloat64(i.speed, v.Purge.Rate.Value)
	}
	if v.Operations.Known() {
		to.ObserveInt64(i.operations, v.Operations.Value.Running, running)
		to.ObserveInt64(i.operations, v.Operations.Value.Parked, parked)
		to.ObserveFloat64(i.parkedFor, v.Operations.Value.ParkedFor.Seconds())
		to.ObserveFloat64(i.late, v.Operations.Value.OverdueFor.Seconds())
	}
	if v.Messages.Known() {
		m := &v.Messages.Value
		to.ObserveInt64(i.unpublished, m.Waiting)
		to.ObserveInt64(i.delayedOnes, m.Delayed)
		to.ObserveInt64(i.heldBack, m.Held)
		to.ObserveInt64(i.letters, m.OutboxDead, outgoing)
		to.ObserveInt64(i.letters, m.InboxDead, incoming)
		to.ObserveFloat64(i.unpublishedAge, m.Oldest.Seconds())
		to.ObserveFloat64(i.failingAge, m.FailingFor.Seconds())
	}
	if v.Acts.Known() {
		for _, a := range v.Acts.Value {
			to.ObserveInt64(i.acts, a.Count, label("idem.act", string(a.Act)))
		}
	}
	if v.Purge.Sweeps.Known() {
		i.showSweeps(to, v.ReadAt, v.Purge.Sweeps.Value)
	}
}

// tableLabels holds the label sets for the figures of a table.
type tableLabels struct{ alone, heap, index, other metric.ObserveOption }

// labelsOfTables caches label sets, which are the same for all instruments and readings.
var labelsOfTables cache[string, tableLabels]

func ofTable(name string) tableLabels {
	return labelsOfTables.get(name, func(name string) tableLabels {
		table := attribute.String("idem.table", name)
		part := func(of string) metric.ObserveOption {
			return metric.WithAttributeSet(attribute.NewSet(table, attribute.String("idem.part", of)))
		}
		return tableLabels{metric.WithAttributeSet(attribute.NewSet(table)), part("heap"), part("index"), part("other")}
	})
}

// showSweeps observes the sweeps of each table. It observes every reason for waiting, so that a
// reason that no longer applies goes back to 0.
func (i *instruments) showSweeps(to metric.Observer, at time.Time, sweeps []stats.Sweep) {
	waiting := map[purge.Reason]int64{}
	for _, s := range sweeps {
		of := ofTable(s.Table).alone
		to.ObserveInt64(i.deleted, s.DeletedTotal, of)
		if lag := s.Lag(at); lag > 0 && s.Table != "records" { // show has observed the lag of the records
			to.ObserveFloat64(i.lag, lag.Seconds(), of)
		}
		if s.WaitingFor != "" {
			waiting[s.WaitingFor]++
		}
	}
	for _, reason := range []purge.Reason{purge.Replication, purge.Vacuum, purge.Pool, purge.Lock} {
		to.ObserveInt64(i.waiting, waiting[reason], label("idem.purge.reason", string(reason)))
	}
}
