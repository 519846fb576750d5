package personality

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgproxy"
)

// Faults configures faults of COMMIT. Each field is an interval: n means every n-th COMMIT, 0 means
// never.
type Faults struct {
	Conflict  int    // the transaction is rolled back; the answer is 40001
	Uncertain int    // the transaction is committed; the answer is the error Code
	Lost      int    // the transaction is committed; the connection breaks before the answer
	Code      string // 40003 or XX000
}

// Proxy is a proxy that makes a PostgreSQL server behave like a personality.
type Proxy struct {
	personality      *Personality
	faults           Faults
	dsn              string
	network, address string
	listener         net.Listener
	commits          atomic.Int64
	told             [4]atomic.Int64 // COMMITs by their fate
	refused          atomic.Int64
	goroutines       sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

// New starts a proxy in front of a database. It first creates the functions of the personality in
// that database, in the schema "personality". The caller closes the proxy.
func New(p *Personality, dsn string, faults Faults) (*Proxy, error) {
	if err := prepare(p, dsn); err != nil {
		return nil, fmt.Errorf("personality: %w", err)
	}
	network, address, err := pgproxy.Upstream(dsn)
	if err != nil {
		return nil, fmt.Errorf("personality: %w", err)
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("personality: %w", err)
	}
	redirected, err := pgproxy.Redirect(dsn, listener.Addr().(*net.TCPAddr))
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("personality: %w", err)
	}
	proxy := &Proxy{personality: p, faults: faults, dsn: redirected, network: network, address: address, listener: listener, open: map[net.Conn]struct{}{}}
	proxy.goroutines.Go(proxy.accept)
	return proxy, nil
}

func prepare(p *Personality, dsn string) error {
	definitions := p.definitions()
	if len(definitions) == 0 {
		return nil
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	// dsn may lead to a pooler, which can lose prepared statements.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	ctx := context.Background()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, definition := range definitions {
		if _, err := conn.Exec(ctx, definition); err != nil {
			return fmt.Errorf("%s: %w", definition, err)
		}
	}
	return nil
}

// DSN returns the address of the database through the proxy.
func (p *Proxy) DSN() string { return p.dsn }

// Refused returns how many statements the proxy has refused.
func (p *Proxy) Refused() int { return int(p.refused.Load()) }

// Faulted returns how many COMMITs were rolled back, were answered with an error although they
// committed, and lost their answer.
func (p *Proxy) Faulted() (rolledBack, leftUncertain, neverTold int) {
	return int(p.told[conflict].Load()), int(p.told[uncertain].Load()), int(p.told[lost].Load())
}

// Close ends all connections and returns when every goroutine of the proxy has ended.
func (p *Proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for conn := range p.open {
		conn.Close()
	}
	p.mu.Unlock()
	p.goroutines.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.goroutines.Go(func() { p.serve(client) })
		}
	}
}

// keep registers a socket that Close has to close. It reports false if the proxy is closed.
func (p *Proxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.open[conn] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) release(conn net.Conn) {
	conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
}

// fate returns what happens to the next COMMIT. The n-th COMMIT gets a fault if its interval
// divides n.
func (p *Proxy) fate() fate {
	n := int(p.commits.Add(1))
	for f, every := range map[fate]int{conflict: p.faults.Conflict, uncertain: p.faults.Uncertain, lost: p.faults.Lost} {
		if every > 0 && n%every == 0 {
			return f
		}
	}
	return plain
}
