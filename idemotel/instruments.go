package idemotel

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem/purge"
	"github.com/idem-go/idem/stats"
)

// kind is the kind of an instrument of Watch.
type kind int

const (
	count  kind = iota // an integer
	amount             // a fraction
	total              // an integer that only grows
	sum                // an integer whose total over all processes is meaningful
)

// definitions are the instruments of Watch. The package documentation lists them, and a test
// compares names and units.
var definitions = []struct {
	kind             kind
	name, unit, text string
}{
	{count, "idem.records", "{record}", "Records in the table, an estimate."},
	{amount, "idem.records.expired.age", "s", "Time since the oldest expired record expired, an estimate."},
	{count, "idem.rows.live", "{row}", "Live rows of a table, an estimate."},
	{count, "idem.rows.dead", "{row}", "Dead rows of a table, not vacuumed yet, an estimate."},
	{count, "idem.storage.size", "By", "Size of a table and its indexes."},
	{count, "idem.transactions", "{transaction}", "Open transactions that have claimed a key."},
	{amount, "idem.transactions.age", "s", "Age of the oldest open transaction that has claimed a key."},
	{count, "idem.keys.held", "{key}", "Keys that have an advisory lock."},
	{amount, "idem.purge.lag", "s", "Time since the last complete sweep of a table began."},
	{total, "idem.purge.deleted", "{row}", "Rows of a table that the purge deleted."},
	{amount, "idem.purge.speed", "{record}/s", "Records that the purge deletes each second."},
	{count, "idem.purge.waiting", "{sweep}", "Sweeps of the purge that wait, by reason."},
	{count, "idem.operations", "{operation}", "Operations that have not ended, by state."},
	{amount, "idem.operations.parked.age", "s", "Time since the earliest step began at which an operation is parked."},
	{amount, "idem.operations.late", "s", "Longest time for which an operation has been due without a process working on it."},
	{count, "idem.outbox.waiting", "{message}", "Messages that wait to be published, up to 10,000."},
	{count, "idem.outbox.delayed", "{message}", "Messages that are not due yet, up to 10,000."},
	{count, "idem.outbox.held", "{message}", "Messages that could not be published, and those behind them, up to 10,000."},
	{amount, "idem.outbox.oldest.age", "s", "Age of the oldest unpublished message that is due."},
	{count, "idem.dead_letters", "{message}", "Messages that could not be published or handled, by side, up to 10,000 each."},
	{count, "idem.acts", "{act}", "Changes by people to records, operations and messages in the last day, by act, up to 10,000."},
	{amount, "idem.inbox.failing.age", "s", "Longest time that a message has been failing."},
	{sum, "db.client.connection.count", "{connection}",
		"The number of connections that are currently in state described by the state attribute."},
	{sum, "db.client.connection.max", "{connection}", "The maximum number of open connections allowed."},
	{total, "db.client.connection.timeouts", "{timeout}",
		"The number of connection timeouts that have occurred trying to obtain a connection from the pool."},
	{total, "idem.pool.waits", "{wait}", "Callers that had to wait for a connection of the pool."},
}

// newGauges creates the instruments of Watch, and returns them by name and as a list.
func newGauges(meter metric.Meter) (byName map[string]metric.Observable, all []metric.Observable, err error) {
	byName = map[string]metric.Observable{}
	for _, g := range definitions {
		var o metric.Observable
		unit, text := metric.WithUnit(g.unit), metric.WithDescription(g.text)
		switch g.kind {
		case count:
			o, err = meter.Int64ObservableGauge(g.name, unit, text)
		case amount:
			o, err = meter.Float64ObservableGauge(g.name, unit, text)
		case total:
			o, err = meter.Int64ObservableCounter(g.name, unit, text)
		case sum:
			o, err = meter.Int64ObservableUpDownCounter(g.name, unit, text)
		}
		if err != nil {
			return nil, nil, err
		}
		byName[g.name], all = o, append(all, o)
	}
	return byName, all, nil
}

// collection observes the gauges in one collection of metrics.
type collection struct {
	to     metric.Observer
	gauges map[string]metric.Observable
}

func (c collection) int(name string, value int64, labels ...attribute.KeyValue) {
	c.to.ObserveInt64(c.gauges[name].(metric.Int64Observable), value, metric.WithAttributes(labels...))
}

func (c collection) float(name string, value float64, labels ...attribute.KeyValue) {
	c.to.ObserveFloat64(c.gauges[name].(metric.Float64Observable), value, metric.WithAttributes(labels...))
}

// seconds observes a duration, unless it is unknown.
func (c collection) seconds(name string, d stats.Figure[time.Duration], labels ...attribute.KeyValue) {
	if d.Known() {
		c.float(name, d.Value.Seconds(), labels...)
	}
}

// label returns a label of a gauge.
var label = attribute.String

// show observes all figures that are known, and leaves out the others.
func (c collection) show(v *stats.Stats) {
	if v.Records.Expired.Known() {
		c.int("idem.records", max(v.Records.Count.Value-v.Records.Expired.Value, 0), label("idem.record.state", "live"))
		c.int("idem.records", v.Records.Expired.Value, label("idem.record.state", "expired"))
	} else {
		c.int("idem.records", v.Records.Count.Value, label("idem.record.state", "unknown"))
	}
	for _, t := range v.Tables {
		table := label("idem.table", t.Name)
		c.int("idem.rows.live", t.LiveRows, table)
		c.int("idem.rows.dead", t.DeadRows, table)
		c.int("idem.storage.size", t.HeapBytes, table, label("idem.part", "heap"))
		c.int("idem.storage.size", t.IndexBytes, table, label("idem.part", "index"))
		c.int("idem.storage.size", t.OtherBytes, table, label("idem.part", "other"))
	}
	c.int("idem.transactions", v.InFlight.Transactions)
	c.int("idem.keys.held", v.InFlight.Keys)
	c.seconds("idem.records.expired.age", v.Records.OldestExpired)
	c.seconds("idem.transactions.age", v.InFlight.Oldest)
	c.seconds("idem.purge.lag", v.Purge.Lag, label("idem.table", "records"))
	if v.Purge.Rate.Known() {
		c.float("idem.purge.speed", v.Purge.Rate.Value)
	}
	if v.Operations.Known() {
		o := &v.Operations.Value
		c.int("idem.operations", o.Running, label("idem.operation.state", "running"))
		c.int("idem.operations", o.Parked, label("idem.operation.state", "parked"))
		c.float("idem.operations.parked.age", o.ParkedFor.Seconds())
		c.float("idem.operations.late", o.OverdueFor.Seconds())
	}
	if v.Messages.Known() {
		m := &v.Messages.Value
		c.int("idem.outbox.waiting", m.Waiting)
		c.int("idem.outbox.delayed", m.Delayed)
		c.int("idem.outbox.held", m.Held)
		c.int("idem.dead_letters", m.OutboxDead, label("idem.side", "outbox"))
		c.int("idem.dead_letters", m.InboxDead, label("idem.side", "inbox"))
		c.float("idem.outbox.oldest.age", m.Oldest.Seconds())
		c.float("idem.inbox.failing.age", m.FailingFor.Seconds())
	}
	if v.Acts.Known() {
		for _, a := range v.Acts.Value {
			c.int("idem.acts", a.Count, label("idem.act", string(a.Act)))
		}
	}
	if v.Purge.Sweeps.Known() {
		c.showSweeps(v.ReadAt, v.Purge.Sweeps.Value)
	}
}

// showSweeps observes the sweeps of each table. It observes every reason for waiting, so that a
// reason that no longer applies goes back to 0.
func (c collection) showSweeps(at time.Time, sweeps []stats.Sweep) {
	waiting := map[purge.Reason]int64{}
	for _, s := range sweeps {
		table := label("idem.table", s.Table)
		c.int("idem.purge.deleted", s.DeletedTotal, table)
		if lag := s.Lag(at); lag > 0 && s.Table != "records" { // show has observed the lag of the records
			c.float("idem.purge.lag", lag.Seconds(), table)
		}
		if s.WaitingFor != "" {
			waiting[s.WaitingFor]++
		}
	}
	for _, reason := range []purge.Reason{purge.Replication, purge.Vacuum, purge.Pool, purge.Lock} {
		c.int("idem.purge.waiting", waiting[reason], label("idem.purge.reason", string(reason)))
	}
}

// showPool observes the statistics of the pool.
func (c collection) showPool(stat *pgxpool.Stat, name string) {
	pool := label("db.client.connection.pool.name", name)
	c.int("db.client.connection.count", int64(stat.IdleConns()), pool, label("db.client.connection.state", "idle"))
	c.int("db.client.connection.count", int64(stat.AcquiredConns()), pool, label("db.client.connection.state", "used"))
	c.int("db.client.connection.max", int64(stat.MaxConns()), pool)
	c.int("db.client.connection.timeouts", stat.CanceledAcquireCount(), pool)
	c.int("idem.pool.waits", stat.EmptyAcquireCount(), pool)
}
