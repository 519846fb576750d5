package pgproxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgproxy"
)

func TestFrozenDirection(t *testing.T) {
	t.Parallel()
	database(t)
	for name, test := range map[string]struct {
		dirs     []pgproxy.Direction
		executed int
	}{
		"to server": {[]pgproxy.Direction{pgproxy.ToServer}, 0},
		"to client": {[]pgproxy.Direction{pgproxy.ToClient}, 1},
		"both":      {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWitness(t), start(t)
			conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
			link := only(t, p)
			stage := pgproxy.Seen
			if test.executed == 1 {
				stage = pgproxy.Answered
			}
			reached := p.Next(stage, nil)
			link.Freeze(test.dirs...)
			done := inBackground(func() error {
				_, err := conn.Exec(within(t), w.sql("insert into %s values ($1)"), 1)
				return err
			})
			receive(t, reached, "the statement")
			if w.rows() != test.executed || len(done) != 0 {
				t.Errorf("%d rows while frozen, want %d; %d answers", w.rows(), test.executed, len(done))
			}
			link.Resume()
			if err := receive(t, done, "the answer"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCutEndsEveryConnection(t *testing.T) {
	t.Parallel()
	database(t)
	for _, how := range []pgproxy.Action{pgproxy.Reset, pgproxy.Hangup} {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			p := start(t)
			conns := []*pgx.Conn{
				connect(t, p.DSN(), pgx.QueryExecModeExec),
				connect(t, p.DSN(), pgx.QueryExecModeExec),
				connect(t, p.DSN(), pgx.QueryExecModeExec),
			}
			links := p.Conns()
			links[2].Freeze() // a frozen connection can be cut
			p.Cut(how)
			for _, conn := range conns {
				if err := conn.Ping(within(t)); !isLost(err) {
					t.Errorf("got %v", err)
				}
			}
			for _, link := range links {
				receive(t, link.Done(), "the end of the connection")
			}
			if left := p.Conns(); len(left) != 0 {
				t.Errorf("%d connections are left", len(left))
			}
		})
	}
}

func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	database(t)
	for _, how := range breakages {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			p := start(t)
			before := connect(t, p.DSN(), pgx.QueryExecModeExec)
			p.Refuse(how)
			ctx, giveUp := context.WithCancel(within(t))
			if how == pgproxy.BlackHole {
				giveUp()
			}
			defer giveUp()
			if _, err := pgx.Connect(ctx, p.DSN()); !isLost(err) {
				t.Errorf("got %v", err)
			}
			mustExec(t, before, "select 1")
			p.Admit()
			mustExec(t, connect(t, p.DSN(), pgx.QueryExecModeExec), "select 1")
		})
	}
}

// Close must end connections in any state. TestMain checks for goroutines that are left.
func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	p, err := pgproxy.New(database(t))
	if err != nil {
		t.Fatal(err)
	}
	var running []<-chan error
	sent := func(sql string) *pgproxy.Conn {
		conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
		forwarded := p.Next(pgproxy.Forwarded, pgproxy.Contains(sql))
		running = append(running, inBackground(func() error { _, err := conn.Exec(context.Background(), sql); return err }))
		return receive(t, forwarded, sql).Conn
	}
	sent("select pg_sleep(60), 'busy'")
	sent("select pg_sleep(60), 'frozen'").Freeze()
	sent("select pg_sleep(60), 'swallowed'").Cut(pgproxy.BlackHole)
	sent("select pg_sleep(60), 'cut'").Cut(pgproxy.Hangup)
	links := p.Conns()
	half := silent(t, p)
	for _, how := range []pgproxy.Action{pgproxy.BlackHole, pgproxy.Hangup, pgproxy.Freeze} {
		p.Refuse(how)
		running = append(running, inBackground(func() error { _, err := pgconn.Connect(context.Background(), p.DSN()); return err }))
	}
	err = receive(t, inBackground(func() error {
		err := p.Close()
		for _, link := range links {
			select {
			case <-link.Done():
			default:
				t.Errorf("connection %d is not over", link.ID())
			}
		}
		return err
	}), "the proxy to close")
	if err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(half); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a client that has not said who it is was forgotten")
	}
	for _, done := range running {
		if err := receive(t, done, "the client to notice"); err == nil {
			t.Error("a statement has succeeded")
		}
	}
}

// silent returns a client that the proxy has begun to serve and that sends nothing more.
func silent(t testing.TB, p *pgproxy.Proxy) net.Conn {
	t.Helper()
	client, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	client.SetDeadline(time.Now().Add(patience))
	client.Write([]byte("\x00\x00\x00\x08\x04\xd2\x16\x2f")) // SSLRequest
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return client
}

func TestWhatIsNoProtocolIsReported(t *testing.T) {
	t.Parallel()
	server := newSink(t)
	p, err := pgproxy.New(server.dsn())
	if err != nil {
		t.Fatal(err)
	}
	client := server.connect(t, p)
	client.Write([]byte{'Q', 0, 0, 0, 3})
	if _, err := io.ReadAll(client); !isReset(err) {
		t.Errorf("the client got %v", err)
	}
	if err := p.Close(); err == nil {
		t.Error("Close reported nothing")
	}
}
