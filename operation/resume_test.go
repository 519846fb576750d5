package operation_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/seal"
)

const unknownID = "11111111-2222-4333-8444-555555555555"

func TestResume_GoesOnAndBeginsNone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := s.checkout()
	for _, id := range []string{unknownID, "'; drop table"} {
		if err := d.Resume(t.Context(), s.pool, id); !errors.Is(err, operation.ErrUnknownOperation) {
			t.Errorf("%s: %v", id, err)
		}
	}
	id, err := s.start(d, "k", hashA, true)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds that it has ended
		if err := d.Resume(t.Context(), s.pool, id); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"order k", "reserve book", "confirm book"}, s.did()); diff != "" {
		t.Errorf("(-want +committed):\n%s", diff)
	}
	if n := s.count(`select count(*) from idem.records`); n != 1 {
		t.Errorf("%d records", n)
	}
}

func TestResume_ReportsWhyItDoesNotGoOn(t *testing.T) {
	t.Parallel()
	sealed := idem.WithSealer(seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": bytes.Repeat([]byte{7}, 32)}}))
	for _, test := range []struct {
		name  string
		opts  []idem.Option
		steps func(s *shop, op *operation.Op) error
		want  error
		state string
	}{
		{name: "it waits", steps: func(_ *shop, op *operation.Op) error { return operation.Sleep(op, "pause", 20*time.Hour) },
			want: idem.ErrInProgress, state: "running"},
		{name: "it was parked", steps: func(_ *shop, op *operation.Op) error {
			_, err := operation.Call(op, "call", operation.Once, func(context.Context, string) (int, error) { return 0, errTimeout })
			return err
		}, want: operation.ErrParked, state: "parked"},
		{name: "it ends in an error that is final", steps: func(_ *shop, op *operation.Op) error {
			return errors.Join(op.Checkpoint(), operation.Final(errDeclined))
		}, want: errDeclined, state: "undone"},
		{name: "it cannot be read", opts: []idem.Option{sealed}, steps: func(*shop, *operation.Op) error { return nil },
			want: idem.ErrUnreadable, state: "running"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := operation.Define("checkout", func(op *operation.Op, _ string) (idem.Response, error) { return created, test.steps(s, op) })
			tx, err := s.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			id, err := d.Start(t.Context(), tx, scope, "k", hashA, "", test.opts...)
			if err != nil || tx.Commit(t.Context()) != nil {
				t.Fatal(err)
			}
			if err := d.Resume(t.Context(), s.pool, id); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if got := s.text(`select state from idem.operations`); got != test.state {
				t.Errorf("it is %s, want %s", got, test.state)
			}
		})
	}
}

func TestResume_LeavesOthersAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := b.call(t.Context(), s)
	await(t, "the call", b.begun)
	id := s.text(`select id::text from idem.operations`)
	for _, there := range []*shop{s, shopOn(t, s.dsn)} { // this process, and another one
		if err := b.Resume(t.Context(), there.pool, id); !errors.Is(err, idem.ErrInProgress) {
			t.Error(err)
		}
	}
	if epoch := s.count(`select epoch from idem.operations`); epoch != 1 {
		t.Errorf("it was claimed, in epoch %d", epoch)
	}
	b.release <- nil
	if a := await(t, "the answer", answers); a.err != nil {
		t.Fatal(a.err)
	}
	other, err := s.start(s.checkout(), "other", hashA, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Resume(t.Context(), s.pool, other); err == nil || b.calls.Load() != 1 {
		t.Errorf("the function of another definition was run: %v", err)
	}
	if state := s.text(`select state from idem.operations where id = $1`, other); state != "running" {
		t.Errorf("it is %s", state)
	}
}

func TestDue_ListsWhatAWorkerWouldClaim(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := b.call(t.Context(), s)
	await(t, "the call", b.begun)
	ids := map[string]string{}
	start := func(name string, is string) {
		t.Helper()
		d := operation.Define(name, func(*operation.Op, string) (idem.Response, error) { return created, nil })
		id, err := s.start(d, is, hashA, true)
		if err != nil {
			t.Fatal(err)
		}
		ids[is] = id
		if _, err := s.pool.Exec(t.Context(), `update idem.operations set `+map[string]string{
			"late":     `wake_at = clock_timestamp() - interval '2 minutes'`,
			"later":    `wake_at = clock_timestamp() - interval '1 minute', epoch = 7`,
			"asleep":   `wake_at = clock_timestamp() + interval '1 hour'`,
			"parked":   `state = 'parked'`,
			"left":     `owner = 2147483647, wake_at = clock_timestamp() - interval '3 minutes'`, // by a process that is not there any more
			"signal":   `kind = 'await', step = 'approve', seq = 1, wake_at = clock_timestamp() + interval '1 hour'`,
			"calling":  `kind = 'await', step = 'approve', seq = 1, wake_at = clock_timestamp() + interval '1 hour'`,
			"stranger": `wake_at = clock_timestamp() - interval '4 minutes'`,
		}[is]+` where id = $1`, id); err != nil {
			t.Fatal(err)
		}
	}
	for _, is := range []string{"late", "later", "asleep", "parked", "left", "signal", "calling"} {
		start("checkout", is)
	}
	start("another", "stranger")
	if _, err := s.pool.Exec(t.Context(), `insert into idem.steps values ($1, 1, 'await', 'approve', null, now(), 'waiting', null)`, ids["signal"]); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{ids["signal"], ids["calling"]} {
		if err := operation.Signal(t.Context(), s.pool, id, "approve", true); err != nil {
			t.Fatal(err)
		}
	}
	want := []operation.Pending{
		{ID: ids["left"], Name: "checkout", Epoch: 1}, {ID: ids["late"], Name: "checkout", Epoch: 1}, {ID: ids["later"], Name: "checkout", Epoch: 7},
		{ID: ids["signal"], Name: "checkout", Epoch: 1},
	}
	for name, test := range map[string]struct {
		limit int
		but   []operation.Pending
		want  []operation.Pending
	}{
		"all":                         {100, nil, want},
		"a few":                       {2, nil, want[:2]},
		"but for some":                {2, want[1:3], []operation.Pending{want[0], want[3]}},
		"but for one in other epochs": {100, []operation.Pending{{ID: ids["late"], Epoch: 2}}, want},
	} {
		got, err := operation.Due(t.Context(), s.pool, []string{"checkout", "blocked"}, test.limit, test.but...)
		if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +due):\n%s", name, err, diff)
		}
	}
	b.release <- nil
	if a := await(t, "the answer", answers); a.err != nil {
		t.Fatal(a.err)
	}
	// A Worker claims the same.
	s.work(t, operation.Define("checkout", func(op *operation.Op, _ string) (idem.Response, error) {
		if op.ID() == ids["signal"] {
			_, err := operation.Await[bool](op, "approve", time.Hour)
			return created, err
		}
		return created, nil
	}))
	eventually(t, "the worker to end what is due", func() bool {
		return s.count(`select count(*) from idem.operations where name = 'checkout' and state = 'completed'`) == len(want)
	})
	for is, id := range ids {
		ended := s.count(`select count(*) from idem.operations where id = $1 and state = 'completed'`, id) == 1
		if due := slices.ContainsFunc(want, func(p operation.Pending) bool { return p.ID == id }); due != ended {
			t.Errorf("%s: due %t, ended %t", is, due, ended)
		}
	}
}
