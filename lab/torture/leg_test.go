package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/report"
)

// staged is a leg of which only the end is known.
func staged(t *testing.T, name string, stage func(dir string) error) *leg {
	l := &leg{config: &config{seed: 1}, name: name, dir: filepath.Join(t.TempDir(), name)}
	l.stage = func(context.Context) error { return stage(l.dir) }
	return l
}

// files writes the files of a leg without calls, with the given faults.
func files(t *testing.T, dir string, a about, faults ...fault.Event) error {
	t.Helper()
	encoded, err := json.Marshal(a)
	if err != nil {
		return err
	}
	writer, err := history.Create(filepath.Join(dir, faultFile))
	if err != nil {
		return err
	}
	for _, f := range faults {
		writer.Append(faultLine{Event: f})
	}
	return errors.Join(writer.Close(), os.WriteFile(filepath.Join(dir, stateFile), nil, 0o644),
		os.WriteFile(filepath.Join(dir, aboutFile), encoded, 0o644))
}

func TestALegThatFailsIsReportedAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("the server refuses connections")
	fails := staged(t, "fails", func(string) error { return broken })
	works := staged(t, "works", func(dir string) error { return files(t, dir, about{Name: "works"}) })
	violates := staged(t, "violates", func(string) error { return fmt.Errorf("%w: corrupt", errUnreadable) })
	for _, test := range []struct {
		legs []*leg
		want error
		code int
	}{
		{[]*leg{works}, nil, 0},
		{[]*leg{fails, works}, report.ErrFailed, 2},
		{[]*leg{fails, violates}, report.ErrNotKept, 1},
	} {
		total, err := runAll(t.Context(), test.legs, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := total.Err(); !errors.Is(err, test.want) || exitCode(err) != test.code {
			t.Errorf("%v, exit code %d; want %v, %d", err, exitCode(err), test.want, test.code)
		}
		path := filepath.Join(t.TempDir(), report.VerdictFile)
		if err := total.Write(path); err != nil {
			t.Fatal(err)
		}
		verdict, err := report.ReadVerdict(path)
		if failed := len(verdict.Failed["fails"]) > 0; err != nil || failed != (test.legs[0] == fails) {
			t.Errorf("%+v, %v", verdict, err)
		}
	}
}

func TestLegsRunTogetherAndEachIsJudged(t *testing.T) {
	t.Parallel()
	var begun sync.WaitGroup
	begun.Add(2)
	var legs []*leg
	for _, name := range []string{"works", "fails"} {
		legs = append(legs, staged(t, name, func(dir string) error {
			begun.Done()
			begun.Wait()
			if name == "fails" {
				return errors.New("the server refuses connections")
			}
			return files(t, dir, about{Name: name})
		}))
	}
	total, err := runAll(t.Context(), legs, 2)
	if err != nil || !errors.Is(total.Err(), report.ErrFailed) {
		t.Errorf("%v, %v", err, total)
	}
}

func TestAnInterruptEndsTheRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	first := staged(t, "first", func(string) error { cancel(); return context.Canceled })
	second := staged(t, "second", func(string) error { t.Error("it went on"); return nil })
	if _, err := runAll(ctx, []*leg{first, second}, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A run without faults proves nothing, so it must fail.
func TestALegThatFallsSilentHasFailed(t *testing.T) {
	t.Parallel()
	schedule, err := fault.Mix{}.Schedule(true)
	if err != nil {
		t.Fatal(err)
	}
	every := func(pause, until time.Duration) (events []fault.Event) {
		for at := time.Duration(0); at < until; at += pause {
			events = append(events, fault.Event{Kind: fault.Kill, At: at, For: time.Millisecond})
		}
		return events
	}
	for name, test := range map[string]struct {
		faults []fault.Event
		want   error
	}{
		"faults all along":         {every(schedule.AtMost, 35*time.Minute), nil},
		"none after three minutes": {every(time.Second, 3*time.Minute), report.ErrFailed},
		"none":                     {nil, report.ErrFailed},
	} {
		l := staged(t, "leg", func(dir string) error {
			return files(t, dir, about{Until: 35 * time.Minute, Schedules: []fault.Schedule{schedule}}, test.faults...)
		})
		total, err := runAll(t.Context(), []*leg{l}, 1)
		if err != nil || !errors.Is(total.Err(), test.want) {
			t.Errorf("%s: %v, %v", name, err, total.Err())
		}
	}
}

func TestALegThatDoesNotEndIsGivenUp(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	defer close(over)
	if err := within(time.Millisecond, func() error { <-over; return nil }); !errors.Is(err, errEndless) {
		t.Error(err)
	}
}

func TestWhatRunsBesideAFailureEnds(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fails := func(context.Context) error { return broken }
	lasts := func(ctx context.Context) error { <-ctx.Done(); return nil }
	if err := both(t.Context(), fails, lasts); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := both(t.Context(), lasts, fails); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestWhatAServerSaysOfADeadlockIsFoundInItsLog(t *testing.T) {
	t.Parallel()
	const said = `2026-11-24 17:09:13.749 UTC [17177] ERROR:  deadlock detected
2026-11-24 17:09:13.749 UTC [17177] DETAIL:  Process 17177 waits for ShareLock on transaction 737; blocked by process 17181.
	Process 17181 waits for ShareLock on transaction 736; blocked by process 17177.
	Process 17177: update a set v=0
	 where n=2;
	Process 17181: update a set v=0 where n=1;
2026-11-24 17:09:13.749 UTC [17177] HINT:  See server log for query details.
2026-11-24 17:09:13.749 UTC [17177] CONTEXT:  while updating tuple (0,2) in relation "a"
`
	const other = "2026-11-24 17:09:13.749 UTC [17177] ERROR:  division by zero\n"
	if found := deadlock.FindAllString(other+said+other+said, -1); !slices.Equal(found, []string{said, said}) {
		t.Errorf("found %q", found)
	}
}
