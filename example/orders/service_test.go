package main

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/pgtest"
)

func TestListenAndServe_ShutdownLetsRequestsFinish(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	begun, finish := make(chan struct{}), make(chan struct{})
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		io.WriteString(w, "done")
	})
	out, announced := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- listenAndServe(ctx, "127.0.0.1:0", slow, announced, "") }()
	url := announcedURL(t, out)
	answer := make(chan string, 1)
	go func() {
		response, err := http.Get(url)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answer <- string(body)
	}()
	<-begun
	interrupt()
	close(finish)
	if got := <-answer; got != "done" {
		t.Errorf("answered %q", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestRunService_PurgesExpiredRecords(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	_, err := pool.Exec(t.Context(), `insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		values ('s', 'expired', '', gen_random_uuid(), now(), now() - '2 hours'::interval, 'completed'),
		       ('s', 'live', '', gen_random_uuid(), now(), now() + '2 hours'::interval, 'completed')`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const closed = "127.0.0.1:1" // nothing listens there
	at := addresses{database: pool.Config().ConnString(), bank: "http://" + closed, broker: "nats://" + closed, webhookSecret: webhookSecret}
	served := make(chan error, 1)
	go func() { served <- runService(ctx, at, "127.0.0.1:0", io.Discard) }()
	for deadline, left := time.Now().Add(2*time.Minute), ""; left != "live"; time.Sleep(time.Millisecond) {
		if err := pool.QueryRow(t.Context(), "select string_agg(key, ', ' order by key) from idem.records").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("keys left: %s", left)
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
