package ui_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/ui"
	"github.com/idem-go/idem/operation"
)

func TestOverview_ShowsProcesses(t *testing.T) {
	t.Parallel()
	d := newHarness(t, nil)
	d.keep("shop <b>", "a key of some length", "secret")
	d.get("").want(t, 200, `Workers</a></th><td class="warn">none runs`, `Relays</a></th><td class="warn">none runs`, `Parked operations</a></th><td class="bad">1<`,
		`<svg class="chart bad"`, "Parked operations: 1, highest 1", "Outbox lag of the topic shop &lt;b&gt;: 2 d", "Dead letters: 2", "In progress: ",
		"Executed per minute</bdi>: <span class=\"note\">Not known before", "Replayed per minute</bdi>: <span class=\"note\">A replay writes nothing to the database")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	one := operation.Define("one", func(*operation.Op, int) (idem.Response, error) { return idem.Response{}, nil })
	go func() { ended <- operation.NewWorker(d.pool, operation.WorkerConfig{}, one).Run(ctx) }()
	for begun := time.Now(); d.count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1768187248::oid AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatal("no Worker is visible")
		}
	}
	harnessAt(t, d.pool, nil).get("").want(t, 200, `Workers</a></th><td class="">at least one runs`)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestDoctorPage_ShowsFindings(t *testing.T) {
	t.Parallel()
	d := newHarness(t, nil)
	d.get("").want(t, 200, "not examined yet")
	err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
		refund := operation.Define("refund", func(*operation.Op, int) (idem.Response, error) { return idem.Response{}, nil })
		_, err := refund.Start(t.Context(), tx, "s", "k", idem.HashBytes(), 1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	d.get("doctor").want(t, 200, "1 operations are due, and no Worker runs", "→", "operation.Worker", "checks ran at")
	time.Sleep(1100 * time.Millisecond) // a reading of the overview is shared for a second
	d.get("").want(t, 200, "warnings", "ago")
	d.get("terms").want(t, 200, "<dt>in doubt</dt>", "<dt>lane</dt>", "docs/glossary.md")
}

func TestPage_RunFillsTheCharts(t *testing.T) {
	t.Parallel()
	d := newHarness(t, nil)
	var counted atomic.Int64
	page, err := ui.New(ui.Config{Pool: d.pool, Counts: func() (executed, replayed int64) { return counted.Add(1), 0 }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- page.Run(ctx) }()
	for begun := time.Now(); counted.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatal("the overview cannot be read")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
