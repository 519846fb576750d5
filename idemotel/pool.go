package idemotel

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// poolSet holds the label sets of a pool.
type poolSet struct{ pool, idle, used metric.ObserveOption }

func newPoolSet(name string) poolSet {
	pool := attribute.String("db.client.connection.pool.name", name)
	in := func(state string) metric.ObserveOption {
		return metric.WithAttributeSet(attribute.NewSet(pool, attribute.String("db.client.connection.state", state)))
	}
	return poolSet{metric.WithAttributeSet(attribute.NewSet(pool)), in("idle"), in("used")}
}

// showPool observes the statistics of the pool.
func (i *instruments) showPool(to metric.Observer, stat *pgxpool.Stat, set poolSet) {
	to.ObserveInt64(i.connections, int64(stat.IdleConns()), set.idle)
	to.ObserveInt64(i.connections, int64(stat.AcquiredConns()), set.used)
	to.ObserveInt64(i.maxConnections, int64(stat.MaxConns()), set.pool)
	to.ObserveInt64(i.timeouts, stat.CanceledAcquireCount(), set.pool)
	to.ObserveInt64(i.queued, stat.EmptyAcquireCount(), set.pool)
}
