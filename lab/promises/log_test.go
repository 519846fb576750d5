package promises_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
)

// journal is the output of a logger. It is safe for concurrent use.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// lines returns level, message and attributes of the lines since the last call. Attributes that
// differ between runs are shown by name only.
func (j *journal) lines(t *testing.T) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(j.text.String()) {
		var logged map[string]any
		if err := json.Unmarshal([]byte(line), &logged); err != nil {
			t.Fatal(err)
		}
		head := fmt.Sprint(logged["level"], " ", logged["msg"])
		for _, name := range []string{"time", "level", "msg"} {
			delete(logged, name)
		}
		for _, name := range []string{"duration", "waited", "age", "execution_id"} {
			if _, ok := logged[name]; ok {
				logged[name] = "…"
			}
		}
		rest, _ := json.Marshal(logged)
		lines = append(lines, head+" "+strings.ReplaceAll(string(rest), `"`, ""))
	}
	j.text.Reset()
	return lines
}

func TestLogHasEachCallAtTheLevelThatItDeserves(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	busy := l.hold(t, "busy", hashA, nil)
	defer busy.release()
	over, end := context.WithCancel(ctx)
	end()
	var j journal
	observer := idem.WithObserver(idem.LogObserver(j.logger()))
	failures := 0
	for _, test := range []struct {
		call func()
		want []string
	}{
		{func() { idemDo(ctx, l.pool, scope, "k", hashA, answer(ok), observer, idem.WithName("n")) },
			[]string{"DEBUG idem: call executed {attempts:1,duration:…,execution_id:…,key:k…(1),name:n}"}},
		{func() { idemDo(ctx, l.pool, scope, "k", hashA, answer(ok), observer) },
			[]string{"INFO idem: call replayed {age:…,attempts:0,duration:…,execution_id:…,key:k…(1)}"}},
		{func() { idem.DoTx(ctx, l.begin(ctx), scope, "k", hashB, answer(ok), observer) },
			[]string{"WARN idem: call mismatch {attempts:0,cause:mismatch,duration:…,joined:true,key:k…(1)}"}},
		{func() {
			idemDo(ctx, l.pool, scope, "r", hashA, func(pgx.Tx) (idem.Response, error) { return ok, idem.Reject(ok) }, observer)
		}, []string{"INFO idem: call rejected {attempts:1,duration:…,execution_id:…,key:r…(1)}"}},
		{func() {
			idemDo(ctx, l.pool, scope, "busy", hashA, answer(ok), observer, idem.WithWait(50*time.Millisecond))
		},
			[]string{"DEBUG idem: call waiting {attempt:0,key:bu…(4)}",
				"WARN idem: call in_progress {attempts:0,cause:in_progress,duration:…,key:bu…(4),waited:…}"}},
		{func() {
			idemDo(ctx, l.pool, scope, "again", hashA, func(pgx.Tx) (idem.Response, error) {
				if failures++; failures == 1 {
					return ok, serializationFailure
				}
				return ok, errBusiness
			}, observer)
		}, []string{"INFO idem: call retried {attempt:1,cause:conflict,key:ag…(5)}",
			"WARN idem: call failed {attempts:2,cause:other,duration:…,key:ag…(5)}"}},
		{func() { idemDo(over, l.pool, scope, "over", hashA, answer(ok), observer) },
			[]string{"INFO idem: call failed {attempts:0,cause:canceled,duration:…,key:ov…(4)}"}},
		{func() {
			escape(t, func() {
				idemDo(ctx, l.pool, scope, "p", hashA, func(pgx.Tx) (idem.Response, error) { panic("!") }, observer)
			})
		}, []string{"ERROR idem: call panicked {attempts:1,duration:…,key:p…(1)}"}},
	} {
		test.call()
		if diff := cmp.Diff(test.want, j.lines(t)); diff != "" {
			t.Errorf("(-want +logged)\n%s", diff)
		}
	}
}

func TestLogIsLoudWhereSomebodyHasToLook(t *testing.T) {
	t.Parallel()
	var j journal
	observer := idem.LogObserver(j.logger())
	ctx := observer.TraceStart(context.Background(), idem.TraceStartData{Key: "…(1)"})
	for _, event := range []idem.Event{idem.EventOutcomeUnknown, idem.EventResolvedCommitted, idem.EventResolvedRolledBack} {
		observer.TraceEvent(ctx, idem.TraceEventData{Event: event})
	}
	observer.TraceEnd(ctx, idem.TraceEndData{Outcome: idem.OutcomeUnknown, Cause: idem.CauseOutcomeUnknown})
	observer.TraceEnd(ctx, idem.TraceEndData{Outcome: idem.OutcomeFailed, Cause: idem.CauseUnreadable})
	var levels []string
	for _, line := range j.lines(t) {
		level, _, _ := strings.Cut(line, " {")
		levels = append(levels, level)
	}
	want := []string{"WARN idem: call outcome_unknown", "INFO idem: call resolved_committed",
		"INFO idem: call resolved_rolled_back", "ERROR idem: call unknown", "ERROR idem: call failed"}
	if diff := cmp.Diff(want, levels); diff != "" {
		t.Errorf("(-want +logged)\n%s", diff)
	}
}

func TestLogTellsNothingPersonal(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	const key, who, what = "key-of-Ada-Lovelace", "tenant-Ada", "body-of-Ada"
	var j journal
	observer := idem.WithObserver(idem.LogObserver(j.logger()))
	for _, hash := range []idem.Hash{hashA, hashB} {
		for _, end := range []error{errors.New("no money left for Ada"), &idem.OutcomeUnknownError{Err: errors.New("Ada")}, nil} {
			fn := func(tx pgx.Tx) (idem.Response, error) {
				_, err := tx.Exec(ctx, "select 'Ada'::int")
				if end == nil {
					err = nil
				}
				return idem.Response{Status: 201, Header: map[string][]string{"H": {what}}, Body: []byte(what)}, errors.Join(end, err)
			}
			idemDo(ctx, l.pool, who, key, hash, fn, observer, idem.WithRetries(1))
			tx := l.begin(ctx)
			idem.DoTx(ctx, tx, who, key, hash, fn, observer)
			tx.Rollback(ctx)
		}
	}
	text := j.text.String()
	if n := strings.Count(text, "\n"); n < 10 {
		t.Errorf("only %d lines were logged", n)
	}
	if strings.Contains(text, "Ada") {
		t.Errorf("the log tells of her:\n%s", text)
	}
	if !strings.Contains(text, `key-…(19)`) {
		t.Errorf("the log does not tell the calls apart:\n%s", text)
	}
}

// Not parallel: the default logger is global.
func TestLogObserverWithoutALoggerUsesTheDefaultOfTheMoment(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	observer := idem.LogObserver(nil)
	var j journal
	slog.SetDefault(j.logger())
	idemDo(context.Background(), nil, scope, "k", hashA, answer(ok), idem.WithObserver(observer))
	if lines := j.lines(t); len(lines) != 1 || !strings.HasPrefix(lines[0], "WARN idem: call failed") {
		t.Errorf("logged %q", lines)
	}
}

func TestCauseSaysWhatKindOfErrorItIs(t *testing.T) {
	t.Parallel()
	for want, errs := range map[idem.Cause][]error{
		idem.CauseNone:           {nil},
		idem.CauseInProgress:     {idem.ErrInProgress, &idem.InProgressError{}},
		idem.CauseMismatch:       {&idem.MismatchError{}},
		idem.CauseInvalid:        {idem.ErrInvalidKey, idem.ErrInvalidScope, idem.ErrInvalidResponse},
		idem.CauseTooLarge:       {&idem.ResponseTooLargeError{}},
		idem.CauseUnreadable:     {idem.ErrUnreadable, &idem.UnreadableError{Err: context.DeadlineExceeded}, &idem.UnreadableError{Err: pgError("57P01")}},
		idem.CauseOutcomeUnknown: {&idem.OutcomeUnknownError{Err: pgError("57P01")}},
		idem.CauseTxAborted:      {idem.ErrTxAborted},
		idem.CauseTxEnded:        {idem.ErrTxEnded},
		idem.CausePoolExhausted:  {&idem.PoolExhaustedError{}},
		idem.CauseConflict:       {serializationFailure, fmt.Errorf("fn: %w", pgError("40P01"))},
		idem.CauseLockTimeout:    {pgError("55P03")},
		idem.CauseTooSlow:        {pgError("25P03"), errors.Join(idem.ErrTxAborted, pgError("25P04"))},
		idem.CauseReadOnly:       {pgError("25006")},
		idem.CauseOutOfResources: {pgError("53300"), pgError("53100")},
		idem.CauseConnectionLost: {pgError("57P01"), pgError("08006"), io.EOF, net.ErrClosed},
		idem.CausePostgres:       {pgError("23505"), pgError("XX000"), pgError("")},
		idem.CauseCanceled:       {context.Canceled},
		idem.CauseDeadline:       {context.DeadlineExceeded},
		idem.CauseOther:          {errBusiness, pgx.ErrNoRows},
	} {
		for _, err := range errs {
			if got := idem.CauseOf(err); got != want {
				t.Errorf("CauseOf(%v) = %q, want %q", err, got, want)
			}
		}
	}
}

func pgError(code string) error { return &pgconn.PgError{Code: code} }
