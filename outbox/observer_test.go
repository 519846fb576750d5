package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// seen is an observer that stores its data. It closes some after the first call.
type seen struct {
	mu   sync.Mutex
	all  []outbox.TracePublishedData
	some chan struct{}
}

func (s *seen) TracePublished(_ context.Context, data outbox.TracePublishedData) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all = append(s.all, data); len(s.all) == 1 {
		close(s.some)
	}
}

func TestObserver_SeesEachCall(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.fill(3)
	a, b := &seen{some: make(chan struct{})}, &seen{some: make(chan struct{})}
	_, stop := o.relay(outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
		return nil
	}), outbox.RelayConfig{Observer: outbox.Observers(nil, a, nil, b)})
	defer stop()
	for _, s := range []*seen{a, b} {
		select {
		case <-s.some:
		case <-time.After(limit):
			t.Fatal("no call of an observer")
		}
		s.mu.Lock()
		if d := s.all[0]; d.Given != 3 || d.Published != 3 || d.Failed != 0 || d.Err != nil || d.Duration <= 0 {
			t.Errorf("%+v", d)
		}
		s.mu.Unlock()
	}
	if outbox.Observers(nil) != nil {
		t.Error("Observers returns an observer that observes nothing")
	}
}

func TestLogObserver_LogsNoPersonalData(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := outbox.LogObserver(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for level, data := range map[string]outbox.TracePublishedData{
		"DEBUG": {Given: 3, Published: 3}, "WARN": {Given: 3, Published: 1, Failed: 1, Err: errors.New("Ada is away"), Cause: "other"},
	} {
		log.Reset()
		o.TracePublished(t.Context(), data)
		if line := log.String(); !strings.Contains(line, "level="+level) || !strings.Contains(line, "given=3") || strings.Contains(line, "Ada") {
			t.Errorf("%s: %s", level, line)
		}
	}
}
