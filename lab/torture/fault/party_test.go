package fault

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgserver/child"
	"github.com/idem-go/idem/lab/torture/cluster"
)

// work calls Do again and again, with a new key after each success, and prints the keys that
// succeeded.
func work(dsn string) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		panic(err)
	}
	for n := 0; ; n++ {
		key := fmt.Sprintf("%d-%d", os.Getpid(), n)
		fmt.Println("begin", key)
		for workOn(ctx, pool, key) != nil {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("end", key)
	}
}

func workOn(ctx context.Context, pool *pgxpool.Pool, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := idem.Do(ctx, pool, "fault", key, idem.Hash{1}, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "insert into done values ($1)", key)
		return idem.Response{}, err
	})
	return err
}

// party is a set of workers, each with a process if it was started with one.
type party struct{ slots []*member }

type member struct {
	process *child.Process
	silent  chan struct{} // closed when it has said all
	proxy   *pgproxy.Proxy

	mu           sync.Mutex
	begun, ended []string
}

func (p *party) Len() int                   { return len(p.slots) }
func (p *party) Proxy(i int) *pgproxy.Proxy { return p.slots[i].proxy }
func (p *party) Signal(i int, sig syscall.Signal) error {
	if p.slots[i].process == nil {
		return os.ErrProcessDone
	}
	return p.slots[i].process.Signal(sig)
}

// newParty starts n workers whose processes run work. flavour changes their DSN.
func newParty(t *testing.T, c *cluster.Cluster, n int, flavour string) *party {
	t.Helper()
	p := proxies(t, c, n)
	for _, m := range p.slots {
		m.start(t, flavour)
	}
	return p
}

// proxies returns workers without processes.
func proxies(t *testing.T, c *cluster.Cluster, n int) *party {
	t.Helper()
	p := new(party)
	for range n {
		proxy, err := pgproxy.New(c.DSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { proxy.Close() })
		p.slots = append(p.slots, &member{proxy: proxy})
	}
	return p
}

func (m *member) start(t *testing.T, flavour string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "as-worker", m.proxy.DSN()+flavour)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, os.Stderr
	m.process, err = child.Start(cmd, syscall.SIGKILL)
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.process.Kill)
	m.silent = make(chan struct{})
	go func() {
		defer close(m.silent)
		defer out.Close()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			m.note(lines.Text())
		}
	}()
}

func (m *member) note(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	word, key, _ := strings.Cut(line, " ")
	if word == "begin" {
		m.begun = append(m.begun, key)
	} else {
		m.ended = append(m.ended, key)
	}
}

func (m *member) progress() (begun, ended []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.begun), slices.Clone(m.ended)
}

// awaitProgress waits until every worker has succeeded n more times.
func (p *party) awaitProgress(t *testing.T, n int) {
	t.Helper()
	for i, m := range p.slots {
		_, before := m.progress()
		eventually(t, fmt.Sprintf("worker %d makes progress", i), func() bool {
			_, ended := m.progress()
			return len(ended) >= len(before)+n
		})
	}
}

// halt ends the workers and returns the keys that succeeded.
func (p *party) halt(t *testing.T, c *cluster.Cluster) (acknowledged []string) {
	t.Helper()
	for _, m := range p.slots {
		m.process.Kill()
		<-m.silent
		m.proxy.Cut(pgproxy.Reset)
		_, ended := m.progress()
		acknowledged = append(acknowledged, ended...)
	}
	if err := c.AwaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	awaitNoSession(t, c)
	return acknowledged
}

// lost counts the acknowledged keys that are missing. It fails the test if a record has no effect,
// or if an effect has no record or exists twice.
func lost(t *testing.T, c *cluster.Cluster, acknowledged []string) int {
	t.Helper()
	apart := count(t, c, `select count(*) from (select key, count(*) n from done group by key) d
		full join idem.records r on r.key = d.key where r.key is null or d.key is null or n > 1 or r.state <> 'completed'`)
	if apart > 0 {
		t.Errorf("%d keys and effects are apart", apart)
	}
	return count(t, c, "select count(*) from unnest($1::text[]) a(key) where not exists (select from done where key = a.key)", acknowledged)
}
