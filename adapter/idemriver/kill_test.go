package idemriver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/lab/ledger"
)

// The test binary is also the process that gets killed: with these variables set it works until its input ends.
const (
	processOf   = "IDEM_TEST_RIVER_OF"
	processName = "IDEM_TEST_RIVER_NAME"
)

func TestMain(m *testing.M) {
	if role := ledger.Role(); role != "" {
		fmt.Println(relayOrConsume(context.Background(), role))
		os.Exit(1)
	}
	if dsn := os.Getenv(processOf); dsn != "" {
		if err := work(context.Background(), dsn, os.Getenv(processName)); err != nil {
			fmt.Println(err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func work(ctx context.Context, dsn, name string) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	w := idemriver.NewWorker(pool, idemriver.Config{}, order(pool, name))
	client, err := clientOf(pool, w, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	go w.Watch(ctx, client)
	fmt.Println("at work")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// process is one of those.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.Closer
}

func newProcess(t *testing.T, dsn, name string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), processOf+"="+dsn, processName+"="+name)
	p.cmd.Stderr = t.Output()
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "at work\n" {
		t.Fatalf("process %s says %q, %v", name, line, err)
	}
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// Three processes work on the operations, and again and again one of them is killed in the middle of a call. River would rescue its
// jobs after an hour.
func TestOperationsOfKilledProcessesEndExactlyOnceAndSoon(t *testing.T) {
	t.Parallel()
	const kills, batch = 8, 12
	dsn, pool := newDatabase(t)
	if _, err := pool.Exec(t.Context(), shopTables+`INSERT INTO gate VALUES (true)`); err != nil {
		t.Fatal(err)
	}
	d := order(pool, "")
	client := newClient(t, pool, idemriver.NewWorker(pool, idemriver.Config{}, d))
	processes := map[string]*process{}
	for i := range 3 {
		p := newProcess(t, dsn, fmt.Sprint("process ", i))
		processes[p.name] = p
	}
	started := 0
	for i := range kills {
		if i == kills/2 { // so far, a process that was in a call was in it when it was killed; from here on, anywhere
			if _, err := pool.Exec(t.Context(), `DELETE FROM gate`); err != nil {
				t.Fatal(err)
			}
		}
		for range batch {
			in := "book"
			if started%4 == 3 {
				in = "reject"
			}
			start(t, pool, client, d, fmt.Sprint("k", started), in)
			started++
		}
		var name string
		eventually(t, "a process in a call", func() bool {
			return pool.QueryRow(t.Context(), `INSERT INTO processes SELECT process, clock_timestamp() FROM calls c
				WHERE gone IS NULL AND NOT EXISTS (SELECT FROM processes p WHERE p.name = c.process)
				ORDER BY entered DESC LIMIT 1 RETURNING name`).Scan(&name) == nil
		})
		processes[name].kill()
		delete(processes, name)
		p := newProcess(t, dsn, fmt.Sprint("process ", 3+i))
		processes[p.name] = p
	}
	killed := time.Now()
	eventually(t, "all operations to end", func() bool {
		return count(t, pool, `SELECT count(*) FROM idem.operations WHERE ended_at IS NOT NULL`) == started
	})
	t.Logf("%d operations, %d kills; all have ended %v after the last", started, kills, time.Since(killed).Round(time.Millisecond))
	wantBooks(t, pool, started)
	if n := count(t, pool, `SELECT count(*) FROM bank WHERE asked > 1`); n == 0 {
		t.Error("no call was repeated: nothing was killed in one")
	}
}
