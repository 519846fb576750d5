package operation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

func TestLogObserver_LogsStepsWithoutErrorTexts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var text bytes.Buffer // written to by one goroutine
	logger := slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	attempts := 0
	d := operation.Define("checkout", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := localStep(op, "reserve"); err != nil {
			return idem.Response{}, err
		}
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
			if attempts++; attempts == 1 {
				return 0, errTimeout
			}
			return 0, operation.Final(errDeclined)
		})
		if err != nil {
			return idem.Response{}, idem.Reject(declined)
		}
		return created, nil
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithObserver(idem.LogObserver(logger))); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(text.String()) {
		var l struct {
			Level, Msg, Name, Key, Step, Kind, Cause string
			OperationID                              string `json:"operation_id"`
			ExecutionID                              string `json:"execution_id"`
			Duration                                 *int64
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s: %s %s %s %s, %t %t", l.Level, l.Msg, l.Name, l.Kind, l.Step, l.Cause, len(l.OperationID+l.ExecutionID) == 36, l.Duration != nil))
	}
	want := []string{
		"DEBUG idem: step done: checkout tx reserve , true true",
		"WARN idem: step unknown: checkout call charge other, true true",
		"INFO idem: step failed: checkout call charge other, true true",
		"INFO idem: call rejected: checkout   , true true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +logged):\n%s", diff)
	}
	for _, secret := range []string{errTimeout.Error(), errDeclined.Error(), scope} {
		if strings.Contains(text.String(), secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}
