package purge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// report is one call of Options.Done.
type report struct {
	Report
	err error
}

// start runs Run until stop is called, which waits for its end.
func (h *house) start(t *testing.T, o Options) (reports <-chan report, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan report, 1000)
	o.Done = func(rep Report, err error) { told <- report{rep, err} }
	done := make(chan error, 1)
	go func() { done <- Run(ctx, h.pool, o) }()
	stop = func() {
		cancel()
		if err := await(t, "Run to end", done); err != nil {
			t.Errorf("Run: %v", err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return told, stop
}

func TestRun_SweepsUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	o := swift()
	o.Every = 5 * time.Millisecond
	reports, stop := h.start(t, o)
	for range 3 {
		h.records(100, "expired", "completed", "2 hours")
		for deleted := int64(0); deleted < 100; {
			rep := await(t, "a sweep", reports)
			if rep.err != nil {
				t.Fatal(rep.err)
			}
			deleted += rep.Deleted
		}
	}
	stop()
}

func TestRun_OneSweepPerIntervalAcrossRuns(t *testing.T) {
	t.Parallel()
	h := newHouse(t, maxConns(8))
	h.records(100, "expired", "completed", "2 hours")
	o := swift()
	o.Every = time.Hour
	first, _ := h.start(t, o)
	if rep := await(t, "the first sweep", first); rep.err != nil || rep.Deleted != 100 {
		t.Fatalf("%+v", rep)
	}
	h.records(100, "expired later", "completed", "2 hours")
	complete, err := o.complete(h.pool)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if rep, err := once(t.Context(), h.pool, complete, o.Every); err != nil || rep.hasSwept() || rep.Tables[0].Ended != Elsewhere {
			t.Errorf("another run: %+v, %v", rep, err)
		}
	}
	h.exec("update idem.sweeps set last_started_at = last_started_at - '61 minutes'::interval")
	if rep, err := once(t.Context(), h.pool, complete, o.Every); err != nil || rep.Deleted != 100 {
		t.Errorf("an hour later: %+v, %v", rep, err)
	}
}

func TestRun_ResumesAReleasedSweepBeforeItsTime(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 3000)
	h.once(swift())
	h.records(3000, "expired", "completed", "2 hours")
	o := swift()
	o.Pages = 8
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(Progress) { cancel() }
	if _, err := Once(ctx, h.pool, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	o.Progress, o.Every = nil, time.Hour
	reports, _ := h.start(t, o)
	if rep := await(t, "the rest of the sweep", reports); rep.err != nil || !rep.Tables[0].Resumed || rep.Deleted == 0 {
		t.Errorf("%+v", rep)
	}
	h.wantLeft(map[string]int64{})
}

// The report has the reason Stopped, and nothing is logged.
func TestRun_CanceledSweepIsNoFailure(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 3000)
	ctx, cancel := context.WithCancel(t.Context())
	o := swift()
	o.Pages = 8
	o.Progress = func(Progress) { cancel() }
	var told []Reason
	o.Done = func(rep Report, err error) {
		told = append(told, rep.Tables[0].Ended)
		if err != nil {
			t.Errorf("it was told %v", err)
		}
	}
	if err := Run(ctx, h.pool, o); err != nil || !slices.Equal(told, []Reason{Stopped}) {
		t.Errorf("%v, %v", told, err)
	}
}

func TestRun_ReportsAFailureAndRetries(t *testing.T) {
	t.Parallel()
	h := newHouseWithExpired(t, 100)
	h.exec("alter table idem.sweeps rename to away")
	o := swift()
	o.Every = 5 * time.Millisecond
	reports, _ := h.start(t, o)
	for range 2 {
		rep := await(t, "a failure", reports)
		var pgErr *pgconn.PgError
		if !errors.As(rep.err, &pgErr) || !strings.Contains(rep.err.Error(), "migrations") || rep.Tables[0].Ended != Failed {
			t.Errorf("%+v", rep)
		}
	}
	h.exec("alter table idem.away rename to sweeps")
	for {
		if rep := await(t, "a sweep", reports); rep.err == nil {
			if rep.Deleted != 100 {
				t.Errorf("%+v", rep)
			}
			return
		}
	}
}

// The last table is missing, as in a database that is not migrated yet.
func TestRun_FailingTableDoesNotStopTheOthers(t *testing.T) {
	all := tables
	t.Cleanup(func() { tables = all })
	missing := records
	missing.name, missing.relation = "missing", "idem.missing"
	tables = []table{missing, records}
	h := newHouseWithExpired(t, 100)
	rep, err := Once(t.Context(), h.pool, swift())
	if err == nil || !strings.Contains(err.Error(), "idem.missing is missing") || len(rep.Tables) != 2 {
		t.Errorf("%v, %+v", err, rep)
	}
	if rep.Deleted != 100 || rep.Tables[0].Ended != Failed || rep.Tables[1].Ended != Finished {
		t.Errorf("%+v", rep)
	}
}

func TestReport_StringIsOneLine(t *testing.T) {
	t.Parallel()
	rep := Report{Tables: []Sweep{
		{Counts: Counts{Deleted: 12, Kept: 3, Skipped: 1, Pages: 7}, Table: "records", Ended: Finished, Duration: 1234 * time.Millisecond,
			Waited: map[Reason]time.Duration{Vacuum: 30 * time.Second, Replication: time.Second}},
		{Table: "others", Ended: Elsewhere},
	}}
	want := "records: deleted 12, kept 3, skipped 1, walked 7 pages in 1.234s, waited 1s for replication, waited 30s for vacuum: finished; others: elsewhere"
	if got := rep.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	rep = Report{DryRun: true, Tables: rep.Tables[:1]}
	if got := rep.String(); !strings.Contains(got, "would delete 12") {
		t.Error(got)
	}
}
