package outbox_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/idem-go/idem/outbox"
)

func TestObserver_SeesEachCall(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.fill(3)
	seen := make(chan outbox.TracePublishedData, 100)
	note := observing(func(data outbox.TracePublishedData) { seen <- data })
	o.relay(&broker{}, outbox.RelayConfig{Observer: outbox.Observers(nil, note, nil, note)})
	for range 2 {
		if d := await(t, "a call of each observer", seen); d.Given != 3 || d.Published != 3 || d.Failed != 0 || d.Err != nil || d.Duration <= 0 {
			t.Errorf("%+v", d)
		}
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
