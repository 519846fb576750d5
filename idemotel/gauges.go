package idemotel

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem/purge"
	"github.com/idem-go/idem/stats"
)

type kind int

const (
	intGauge kind = iota
	floatGauge
	intCounter
	intUpDownCounter // a value whose sum over all processes is meaningful
)

// definitions are the instruments of Watch. A test checks that the package documentation lists the
// same names and units.
var definitions = []struct {
	kind             kind
	name, unit, text string
}{
	{intGauge, "idem.records", "{record}", "Records in the table, an estimate."},
	{floatGauge, "idem.records.expired.age", "s", "Time since the oldest expired record expired, an estimate."},
	{intGauge, "idem.rows.live", "{row}", "Live rows of a table, an estimate."},
	{intGauge, "idem.rows.dead", "{row}", "Dead rows of a table, not vacuumed yet, an estimate."},
	{intGauge, "idem.storage.size", "By", "Size of a table and its indexes."},
	{intGauge, "idem.transactions", "{transaction}", "Open transactions that have claimed a key."},
	{floatGauge, "idem.transactions.age", "s", "Age of the oldest open transaction that has claimed a key."},
	{intGauge, "idem.keys.held", "{key}", "Keys that have an advisory lock."},
	{floatGauge, "idem.purge.lag", "s", "Time since the last complete sweep of a table began."},
	{intCounter, "idem.purge.deleted", "{row}", "Rows of a table that the purge deleted."},
	{floatGauge, "idem.purge.speed", "{record}/s", "Records that the purge deletes each second."},
	{intGauge, "idem.purge.waiting", "{sweep}", "Sweeps of the purge that wait, by reason."},
	{intGauge, "idem.operations", "{operation}", "Operations that have not ended, by state."},
	{floatGauge, "idem.operations.parked.age", "s",
		"Time since the earliest step began at which an operation is parked."},
	{floatGauge, "idem.operations.late", "s",
		"Longest time for which an operation has been due without a process working on it."},
	{intGauge, "idem.outbox.waiting", "{message}", "Messages that wait to be published, up to 10,000."},
	{intGauge, "idem.outbox.delayed", "{message}", "Messages that are not due yet, up to 10,000."},
	{intGauge, "idem.outbox.held", "{message}",
		"Messages that could not be published, and those behind them, up to 10,000."},
	{floatGauge, "idem.outbox.oldest.age", "s", "Age of the oldest unpublished message that is due."},
	{intGauge, "idem.dead_letters", "{message}",
		"Messages that could not be published or handled, by side, up to 10,000 each."},
	{intGauge, "idem.acts", "{act}",
		"Changes by people to records, operations and messages in the last day, by act, up to 10,000."},
	{floatGauge, "idem.inbox.failing.age", "s", "Longest time that a message has been failing."},
	{intUpDownCounter, "db.client.connection.count", "{connection}",
		"The number of connections that are currently in state described by the state attribute."},
	{intUpDownCounter, "db.client.connection.max", "{connection}", "The maximum number of open connections allowed."},
	{intCounter, "db.client.connection.timeouts", "{timeout}",
		"The number of connection timeouts that have occurred trying to obtain a connection from the pool."},
	{intCounter, "idem.pool.waits", "{wait}", "Callers that had to wait for a connection of the pool."},
}

// newInstruments creates the instruments of Watch, and returns them by name and as a list.
func newInstruments(meter metric.Meter) (byName map[string]metric.Observable, all []metric.Observable, err error) {
	byName = map[string]metric.Observable{}
	for _, d := range definitions {
		var o metric.Observable
		unit, text := metric.WithUnit(d.unit), metric.WithDescription(d.text)
		switch d.kind {
		case intGauge:
			o, err = meter.Int64ObservableGauge(d.name, unit, text)
		case floatGauge:
			o, err = meter.Float64ObservableGauge(d.name, unit, text)
		case intCounter:
			o, err = meter.Int64ObservableCounter(d.name, unit, text)
		case intUpDownCounter:
			o, err = meter.Int64ObservableUpDownCounter(d.name, unit, text)
		}
		if err != nil {
			return nil, nil, err
		}
		byName[d.name], all = o, append(all, o)
	}
	return byName, all, nil
}

// collection reports values to the observer of one OpenTelemetry callback.
type collection struct {
	to          metric.Observer
	instruments map[string]metric.Observable
}

func (c collection) int(name string, value int64, attrs ...attribute.KeyValue) {
	c.to.ObserveInt64(c.instruments[name].(metric.Int64Observable), value, metric.WithAttributes(attrs...))
}

func (c collection) float(name string, value float64, attrs ...attribute.KeyValue) {
	c.to.ObserveFloat64(c.instruments[name].(metric.Float64Observable), value, metric.WithAttributes(attrs...))
}

// seconds reports a duration if it is known.
func (c collection) seconds(name string, d stats.Figure[time.Duration], attrs ...attribute.KeyValue) {
	if d.Known() {
		c.float(name, d.Value.Seconds(), attrs...)
	}
}

var attr = attribute.String

// show reports the figures that are known, and leaves out the others.
func (c collection) show(v *stats.Stats) {
	if v.Records.Expired.Known() {
		c.int("idem.records", max(v.Records.Count.Value-v.Records.Expired.Value, 0), attr("idem.record.state", "live"))
		c.int("idem.records", v.Records.Expired.Value, attr("idem.record.state", "expired"))
	} else {
		c.int("idem.records", v.Records.Count.Value, attr("idem.record.state", "unknown"))
	}
	for _, t := range v.Tables {
		table := attr("idem.table", t.Name)
		c.int("idem.rows.live", t.LiveRows, table)
		c.int("idem.rows.dead", t.DeadRows, table)
		c.int("idem.storage.size", t.HeapBytes, table, attr("idem.part", "heap"))
		c.int("idem.storage.size", t.IndexBytes, table, attr("idem.part", "index"))
		c.int("idem.storage.size", t.OtherBytes, table, attr("idem.part", "other"))
	}
	c.int("idem.transactions", v.InFlight.Transactions)
	c.int("idem.keys.held", v.InFlight.Keys)
	c.seconds("idem.records.expired.age", v.Records.OldestExpired)
	c.seconds("idem.transactions.age", v.InFlight.Oldest)
	c.seconds("idem.purge.lag", v.Purge.Lag, attr("idem.table", "records"))
	if v.Purge.Rate.Known() {
		c.float("idem.purge.speed", v.Purge.Rate.Value)
	}
	if v.Operations.Known() {
		o := &v.Operations.Value
		c.int("idem.operations", o.Running, attr("idem.operation.state", "running"))
		c.int("idem.operations", o.Parked, attr("idem.operation.state", "parked"))
		c.float("idem.operations.parked.age", o.ParkedFor.Seconds())
		c.float("idem.operations.late", o.OverdueFor.Seconds())
	}
	if v.Messages.Known() {
		m := &v.Messages.Value
		c.int("idem.outbox.waiting", m.Waiting)
		c.int("idem.outbox.delayed", m.Delayed)
		c.int("idem.outbox.held", m.Held)
		c.int("idem.dead_letters", m.OutboxDead, attr("idem.side", "outbox"))
		c.int("idem.dead_letters", m.InboxDead, attr("idem.side", "inbox"))
		c.float("idem.outbox.oldest.age", m.Oldest.Seconds())
		c.float("idem.inbox.failing.age", m.FailingFor.Seconds())
	}
	if v.Acts.Known() {
		for _, a := range v.Acts.Value {
			c.int("idem.acts", a.Count, attr("idem.act", string(a.Act)))
		}
	}
	if v.Purge.Sweeps.Known() {
		c.showSweeps(v.ReadAt, v.Purge.Sweeps.Value)
	}
}

// showSweeps reports the sweeps of each table. It reports every reason for waiting, even if no
// sweep waits for it, so that the gauge goes back to 0 after the wait.
func (c collection) showSweeps(at time.Time, sweeps []stats.Sweep) {
	waiting := map[purge.Reason]int64{}
	for _, s := range sweeps {
		table := attr("idem.table", s.Table)
		c.int("idem.purge.deleted", s.DeletedTotal, table)
		if lag := s.Lag(at); lag > 0 && s.Table != "records" { // show has reported the lag of the records
			c.float("idem.purge.lag", lag.Seconds(), table)
		}
		if s.WaitingFor != "" {
			waiting[s.WaitingFor]++
		}
	}
	for _, reason := range []purge.Reason{purge.Replication, purge.Vacuum, purge.Pool, purge.Lock} {
		c.int("idem.purge.waiting", waiting[reason], attr("idem.purge.reason", string(reason)))
	}
}

func (c collection) showPool(stat *pgxpool.Stat, name string) {
	pool := attr("db.client.connection.pool.name", name)
	c.int("db.client.connection.count", int64(stat.IdleConns()), pool, attr("db.client.connection.state", "idle"))
	c.int("db.client.connection.count", int64(stat.AcquiredConns()), pool, attr("db.client.connection.state", "used"))
	c.int("db.client.connection.max", int64(stat.MaxConns()), pool)
	c.int("db.client.connection.timeouts", stat.CanceledAcquireCount(), pool)
	c.int("idem.pool.waits", stat.EmptyAcquireCount(), pool)
}
