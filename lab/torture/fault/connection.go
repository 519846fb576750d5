package fault

import (
	"context"
	"time"

	"github.com/idem-go/idem/lab/pgproxy"
)

var connectionKinds = []Kind{
	{Name: Cut, Group: Connection, weight: 6, inject: cut},
	{Name: CutAll, Group: Connection, weight: 2, inject: cutAll},
	{Name: CutAtByte, Group: Connection, weight: 6, inject: cutAtByte},
	{Name: Delay, Group: Connection, weight: 3, inject: delay},
	{Name: BlackHole, Group: Connection, weight: 3, inject: blackHole},
	{Name: Freeze, Group: Connection, weight: 4, inject: freeze},
	{Name: Refuse, Group: Connection, weight: 3, inject: refuse},
}

// longest is the longest duration of a fault of a connection.
const longest = 2 * time.Second

// connection returns a random open connection of a random worker. It returns errMissed if that
// worker has no open connection.
func (i *injection) connection() (*pgproxy.Conn, error) {
	conns := i.Workers.Proxy(i.worker()).Conns()
	if len(conns) == 0 {
		return nil, errMissed
	}
	return choose(i.rng, conns...), nil
}

func cut(_ context.Context, i *injection) error {
	conn, err := i.connection()
	if err != nil {
		return err
	}
	conn.Cut(choose(i.rng, breakages...))
	return nil
}

func cutAll(_ context.Context, i *injection) error {
	proxy := i.Workers.Proxy(i.worker())
	if len(proxy.Conns()) == 0 {
		return errMissed
	}
	proxy.Cut(choose(i.rng, breakages...))
	return nil
}

// cutAtByte cuts a connection before a byte that is up to 2000 bytes away in one of its streams.
// The cut usually falls into the middle of a protocol message.
func cutAtByte(ctx context.Context, i *injection) error {
	conn, err := i.connection()
	if err != nil {
		return err
	}
	dir := choose(i.rng, pgproxy.ToServer, pgproxy.ToClient)
	at := conn.Bytes(dir) + 1 + i.rng.Int64N(2000)
	_, err = i.spring(ctx, i.event.Worker, pgproxy.AtByte(conn, dir, at), choose(i.rng, breakages...))
	return err
}

func delay(ctx context.Context, i *injection) error {
	proxy := i.Workers.Proxy(i.worker())
	proxy.SetLatency(i.between(100*time.Microsecond, 20*time.Millisecond))
	defer proxy.SetLatency(0)
	sleep(ctx, i.between(100*time.Millisecond, longest))
	return nil
}

// blackHole makes a connection swallow everything, then cuts it. It cannot resume the connection:
// the swallowed bytes are lost, and both ends would read a stream with a gap.
func blackHole(ctx context.Context, i *injection) error {
	conn, err := i.connection()
	if err != nil {
		return err
	}
	conn.Cut(pgproxy.BlackHole)
	defer conn.Cut(pgproxy.Reset)
	sleep(ctx, i.between(50*time.Millisecond, longest))
	return nil
}

// freeze stops the traffic of a connection, then resumes it. Nothing is lost. Without a direction,
// Freeze and Resume affect both directions.
func freeze(ctx context.Context, i *injection) error {
	conn, err := i.connection()
	if err != nil {
		return err
	}
	dirs := choose(i.rng, []pgproxy.Direction{pgproxy.ToServer}, []pgproxy.Direction{pgproxy.ToClient}, nil)
	conn.Freeze(dirs...)
	defer conn.Resume(dirs...)
	sleep(ctx, i.between(20*time.Millisecond, longest))
	return nil
}

// refuse rejects the new connections of a worker for a while, or accepts them and lets them wait.
func refuse(ctx context.Context, i *injection) error {
	proxy := i.Workers.Proxy(i.worker())
	proxy.Refuse(choose(i.rng, pgproxy.Reset, pgproxy.Hangup, pgproxy.BlackHole, pgproxy.Freeze))
	defer proxy.Admit()
	sleep(ctx, i.between(50*time.Millisecond, longest))
	return nil
}
