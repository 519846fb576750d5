package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/example/orders/broker"
	"github.com/idem-go/idem/example/orders/demo"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

func TestDemoHolds(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := demo.Run(t.Context(), demoOf(t, &out, testBinary(t)))
	if err != nil || !strings.HasSuffix(out.String(), "\nevery promise held\n") {
		t.Fatalf("%v\n%s", err, &out)
	}
}

// TestDemoSeesBrokenPromises plays against services that break them the acts that have to show it: see breakages.
func TestDemoSeesBrokenPromises(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	for name, b := range breakages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			config := demoOf(t, &out, testBinary(t))
			config.Acts = b.shows
			whole := config.Command
			config.Command = func(part string) []string {
				if part == "service" {
					return []string{testBinary(t), "broken-service", name}
				}
				return whole(part)
			}
			err := demo.Run(t.Context(), config)
			if !errors.Is(err, demo.ErrBroken) || strings.Contains(out.String(), "every promise held") {
				t.Fatalf("%v\n%s", err, &out)
			}
			for _, act := range b.shows {
				if !lineHas(out.String(), act, "BROKEN") {
					t.Errorf("%q does not show it:\n%s", act, &out)
				}
			}
		})
	}
}

func TestInterruptedDemoLeavesNoProcess(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancelCause(t.Context())
	defer interrupt(nil)
	interrupted := errors.New("Ctrl-C")
	pids := t.TempDir()
	out := writerFunc(func(line []byte) (int, error) {
		if strings.Contains(string(line), "50 duplicates") { // the first act is over, and the second begins
			interrupt(interrupted)
		}
		return len(line), nil
	})
	err := demo.Run(ctx, demoOf(t, out, testBinary(t), "noted", pids))
	if !errors.Is(err, interrupted) {
		t.Errorf("ended with %v, want %v", err, interrupted)
	}
	files, _ := filepath.Glob(filepath.Join(pids, "*"))
	if len(files) < 5 {
		t.Fatalf("%d processes were started, want 5 at least", len(files))
	}
	for _, file := range files {
		pid, _ := strconv.Atoi(filepath.Base(file))
		if process, err := os.FindProcess(pid); err == nil && process.Signal(syscall.Signal(0)) == nil {
			t.Errorf("process %d is still there", pid)
		}
	}
}

// demoOf is a demo whose parts are started by a command to which their name is added.
func demoOf(t *testing.T, out io.Writer, command ...string) demo.Config {
	t.Helper()
	return demo.Config{
		Command:     func(part string) []string { return append(slices.Clone(command), part) },
		DatabaseURL: pgtest.EmptyDSN(t), FulfilmentDatabaseURL: pgtest.EmptyDSN(t), WebhookSecret: webhookSecret,
		Out: out,
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func lineHas(text string, parts ...string) bool {
	for line := range strings.Lines(text) {
		has := true
		for _, part := range parts {
			has = has && strings.Contains(line, part)
		}
		if has {
			return true
		}
	}
	return false
}

// serveBroken is the service with a breakage, in a process of its own.
func serveBroken(name string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := open(ctx, os.Getenv("DATABASE_URL"))
	if err == nil {
		err = serveBreakage(ctx, pool, breakages[name])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveBreakage(ctx context.Context, pool *pgxpool.Pool, b breakage) error {
	metrics, err := newMetrics(pool)
	if err != nil {
		return err
	}
	defer metrics.stop()
	payments := newPayments(os.Getenv("BANK_URL"))
	if b.payments != nil {
		payments.http.Transport = b.payments
	}
	service, err := newService(pool, demoCredentials(), payments, os.Getenv("WEBHOOK_SECRET"), metrics)
	if err != nil {
		return err
	}
	js, err := broker.Connect(os.Getenv("BROKER_URL"))
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	publisher := outbox.Publisher(idemnats.NewPublisher(js, idemnats.PublisherConfig{}))
	if b.publish != nil {
		publisher = b.publish(publisher)
	}
	defer service.startWorking(ctx, publisher)()
	handler := http.Handler(service)
	if b.make != nil {
		if handler, err = b.make(ctx, pool, service); err != nil {
			return err
		}
	}
	return listenAndServe(ctx, os.Args[len(os.Args)-1], handler, os.Stdout, "") // the address comes last
}
