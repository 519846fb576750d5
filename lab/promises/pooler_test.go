package promises_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// renaming imitates a connection to a pooler that renames prepared statements, as PgBouncer does
// from 1.21 on. Such a pooler rewrites protocol messages. A SQL command that names a prepared
// statement does not find it.
type renaming struct {
	net.Conn
	started bool
	closed  *atomic.Int64 // statements closed by the protocol
	texts   *sync.Map     // SQL of the prepared statements
}

func (c *renaming) Write(b []byte) (int, error) {
	if !c.started { // the startup packet has no type byte
		c.started = true
		return c.Conn.Write(b)
	}
	const head = 5 // type and length
	out := bytes.Clone(b)
	for rest := out; len(rest) >= head; {
		n := 1 + int(binary.BigEndian.Uint32(rest[1:]))
		c.rename(rest[0], rest[head:n])
		rest = rest[n:]
	}
	return c.Conn.Write(out)
}

// rename changes the name of a statement in a message.
func (c *renaming) rename(kind byte, body []byte) {
	switch kind {
	case 'P': // Parse: the name comes first, then the text
		if bytes.HasPrefix(body, []byte("idem_load\x00")) {
			c.texts.Store(string(bytes.Split(body, []byte{0})[1]), true)
		}
	case 'B': // Bind: the name comes after that of the portal
		body = body[bytes.IndexByte(body, 0)+1:]
	case 'D', 'C': // Describe, Close: the name comes after one byte
		body = body[1:]
	default:
		return
	}
	if own := []byte("idem_"); bytes.HasPrefix(body, own) {
		copy(body, "pool_")
		if kind == 'C' {
			c.closed.Add(1)
		}
	}
}

func TestPlansAreMadeAnewBehindAPoolerThatRenamesStatements(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, outer := range outers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var closed atomic.Int64
			var texts sync.Map
			l := newLedger(t, maxConns(1), func(config *pgxpool.Config) {
				dial := config.ConnConfig.DialFunc
				config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dial(ctx, network, addr)
					return &renaming{Conn: conn, closed: &closed, texts: &texts}, err
				}
			})
			calls := 0
			call := func() {
				t.Helper()
				key := fmt.Sprint("k", calls)
				if _, err := outer(ctx, l, key, l.charge(key)); err != nil {
					t.Fatalf("call %d: %v", calls, err)
				}
				calls++
			}
			eventually(t, "a plan to be made anew", func() bool { call(); return closed.Load() > 0 })
			call()
			waitIdle(t, l.pool)
			l.wantSameConnections(1)
			different := 0
			texts.Range(func(any, any) bool { different++; return true })
			if different < 2 {
				t.Error("the text is the same: PgBouncer would keep the plan")
			}
		})
	}
}

// If a server connection breaks behind a pooler, the pooler reports it with a message and severity
// of its own.
func TestServersConnectionOfPgBouncerCutAtAnyByteKeepsEffectAndAnswerTogether(t *testing.T) {
	t.Parallel()
	for _, mode := range pgtest.ModesBehindPgBouncer(t) {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			p := newProxied(t)
			cutBehindPgBouncer(t, p, pgtest.Open(t, pgtest.PgBouncer(t, p.proxy.DSN()), maxConns(1), withMode(mode)))
		})
	}
}

func cutBehindPgBouncer(t *testing.T, p *proxied, pool *pgxpool.Pool) {
	ctx := context.Background()
	warm := func() *pgproxy.Conn {
		t.Helper()
		_, err := idemDo(ctx, pool, scope, fmt.Sprint("warm", rand.Int64()), hashA, p.charge("warm"), idem.WithRetries(100))
		if err != nil {
			t.Fatal(err)
		}
		waitIdle(t, pool)
		conns := p.proxy.Conns()
		return conns[len(conns)-1]
	}
	conn := warm()
	before := conn.Bytes(pgproxy.ToClient)
	if _, err := idemDo(ctx, pool, scope, "whole", hashA, p.charge("whole")); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, pool)
	length := conn.Bytes(pgproxy.ToClient) - before
	for offset := length / 3; offset < length; offset += stride() {
		conn := warm()
		trap := p.proxy.Arm(pgproxy.AtByte(conn, pgproxy.ToClient, conn.Bytes(pgproxy.ToClient)+offset), pgproxy.Hangup)
		key := fmt.Sprint("at ", offset)
		_, err := idemDo(ctx, pool, scope, key, hashA, p.charge(key), idem.WithWait(limit))
		trap.Disarm()
		if n := p.entries(key); err == nil && n != 1 || err != nil && n != 0 && !errors.Is(err, idem.ErrOutcomeUnknown) {
			t.Errorf("%s of %d: %d effects, err = %v", key, length, n, err)
		}
	}
}

// behindPgBouncer runs check in each mode that works behind the installed PgBouncer, with one
// connection to it.
func behindPgBouncer(t *testing.T, check func(t *testing.T, l *ledger, mode pgx.QueryExecMode)) {
	t.Helper()
	for _, mode := range pgtest.ModesBehindPgBouncer(t) {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			check(t, ledgerOn(t, pgtest.Open(t, pgtest.PgBouncer(t, pgtest.DSN(t)), maxConns(1), withMode(mode))), mode)
		})
	}
}

// PgBouncer prepares equal SQL once for all clients, and so shares its plan among them.
func TestNoPlanIsKeptByPgBouncer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	behindPgBouncer(t, func(t *testing.T, l *ledger, mode pgx.QueryExecMode) {
		call := func() {
			t.Helper()
			if _, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")); err != nil {
				t.Fatal(err)
			}
			waitIdle(t, l.pool)
		}
		prepared := func() int {
			return l.count("select count(*) from pg_prepared_statements where statement like '-- name: Load :one%'")
		}
		call()
		if (prepared() > 0) != (mode == pgx.QueryExecModeCacheStatement) {
			t.Fatalf("%d statements are prepared", prepared())
		}
		if prepared() > 0 {
			eventually(t, "a plan to be made anew", func() bool { call(); return prepared() > 1 })
		}
		l.wantOnce("k")
	})
}

// PgBouncer must not answer forever with a statement that no longer fits the table.
func TestStaleStatementsOfPgBouncerAreReplaced(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	behindPgBouncer(t, func(t *testing.T, l *ledger, _ pgx.QueryExecMode) {
		for i, kind := range []string{"bigint", "integer", "bigint"} {
			warm, next := fmt.Sprint("warm", i), fmt.Sprint("next", i)
			if _, err := idemDo(ctx, l.pool, scope, warm, hashA, l.charge(warm)); err != nil {
				t.Fatal(err)
			}
			if _, err := l.pool.Exec(ctx, "alter table idem.records alter column status type "+kind); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{warm, next} {
				if _, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key)); err != nil {
					t.Fatalf("%s, %s: %v", kind, key, err)
				}
				l.wantOnce(key)
			}
		}
	})
}
