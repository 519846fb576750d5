package idemriver_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/lab/ledger"
)

// processName is the environment variable with the name of a process that is killed.
const processName = "IDEM_TEST_RIVER_NAME"

func TestMain(m *testing.M) {
	ledger.Work(map[string]func(context.Context, *ledger.Child) error{"worker": work, "relay": relay, "consumer": handleMessages})
	os.Exit(m.Run())
}

// work runs operations until the process is killed.
func work(ctx context.Context, child *ledger.Child) error {
	w := idemriver.NewWorker(child.Pool, idemriver.Config{}, order(child.Pool, os.Getenv(processName)))
	client, err := clientOf(child.Pool, w, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		return err
	}
	ledger.Ready()
	w.Watch(ctx, client)
	return nil
}

// Three processes run the operations. Again and again, one of them is killed during a call. River
// alone would rescue its jobs after an hour.
func TestWorker_ResumesOperationsOfKilledProcesses(t *testing.T) {
	t.Parallel()
	const kills, batch = 4, 8
	dsn, pool := newDatabase(t)
	if _, err := pool.Exec(t.Context(), shopTables+`INSERT INTO gate VALUES (true)`); err != nil {
		t.Fatal(err)
	}
	d := order(pool, "")
	client := newClient(t, pool, idemriver.NewWorker(pool, idemriver.Config{}, d))
	processes := map[string]*ledger.Process{}
	startProcess := func() {
		name := fmt.Sprint("process ", len(processes))
		p, err := ledger.Start("worker", t.Output(), append(ledger.Env(dsn, "", ""), processName+"="+name)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		processes[name] = p
	}
	for range 3 {
		startProcess()
	}
	started := 0
	for i := range kills {
		if i == kills/2 { // up to here, calls block, so that the kill is during a call; from here on, it may be anywhere
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
		processes[name].Kill()
		startProcess()
	}
	killed := time.Now()
	eventually(t, "all operations to end", func() bool {
		return count(t, pool, `SELECT count(*) FROM idem.operations WHERE ended_at IS NOT NULL`) == started
	})
	t.Logf("%d operations, %d kills; all have ended %v after the last", started, kills, time.Since(killed).Round(time.Millisecond))
	wantEffects(t, pool, started)
	if n := count(t, pool, `SELECT count(*) FROM bank WHERE asked > 1`); n == 0 {
		t.Error("no call was repeated: nothing was killed in one")
	}
}
