package operation

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/internal/db"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	tx := func(seq int, o db.StepOutcome) db.Step {
		return db.Step{Seq: seq, Kind: db.TxStep, Name: "reserve", Outcome: o}
	}
	call := func(seq int, o db.StepOutcome) db.Step {
		return db.Step{Seq: seq, Kind: db.CallStep, Name: "charge", Outcome: o}
	}
	undone := func(s db.Step, undos int) db.Step {
		s.Undos = undos
		return s
	}
	sleep := db.Step{Seq: 1, Kind: db.SleepStep, Name: "nap", Outcome: db.StepWaiting}
	child := db.Step{Seq: 1, Kind: db.ChildStep, Name: "ship", Outcome: db.StepWaiting}
	type flags struct{ undoing, canceled, withoutCalling, withoutCode bool }
	canceled, undoing := flags{canceled: true}, flags{undoing: true}
	charge := request{seq: 1, kind: db.CallStep, name: "charge", policy: "keyed 1h", undos: 1}
	with := func(p string, undos int) request {
		r := charge
		r.policy, r.undos = p, undos
		return r
	}
	end := func(seq int, how exit) request { return request{seq: seq, exit: how} }
	for _, test := range []struct {
		name   string
		rows   []db.Step
		flags  flags
		runs   int
		ask    request
		want   action
		reason Reason
	}{
		{"a new step runs", nil, flags{}, 0, charge, run, ""},
		{"a new step after Cancel", nil, canceled, 0, charge, unwind, ""},
		{"a new step after a rejection", nil, undoing, 0, charge, unwind, ""},
		{"a step that is done", []db.Step{call(1, db.StepDone)}, flags{}, 0, charge, replay, ""},
		{"a step that is done, after Cancel", []db.Step{call(1, db.StepDone)}, canceled, 0, charge, replay, ""},
		{"a step that has failed", []db.Step{call(1, db.StepFailed)}, canceled, 0, charge, replay, ""},
		{"a step that has lost its undo", []db.Step{undone(call(1, db.StepDone), 1)}, canceled, 0, with("keyed 1h", 0), park, ReasonCodeChanged},
		{"a step that has lost its undo, going on", []db.Step{undone(call(1, db.StepDone), 1)}, flags{}, 0, with("keyed 1h", 0), replay, ""},
		{"a step that has lost its undo, WithoutCode", []db.Step{undone(call(1, db.StepDone), 1)}, flags{canceled: true, withoutCode: true}, 0, with("keyed 1h", 0), replay, ""},
		{"a step that has got an undo", []db.Step{undone(call(1, db.StepDone), 1)}, canceled, 0, with("keyed 1h", 2), replay, ""},
		{"a step that has got an undo, when another was begun", []db.Step{undone(call(1, db.StepDone), 1), {Seq: 2, Kind: db.UndoStep, Name: "charge", Outcome: db.StepBegun}}, canceled, 0, with("keyed 1h", 2), park, ReasonCodeChanged},
		{"a step that has got an undo, when that of an earlier step was begun", []db.Step{undone(tx(1, db.StepDone), 1), call(2, db.StepDone), {Seq: 3, Kind: db.UndoStep, Name: "reserve", Outcome: db.StepBegun}}, undoing, 0, request{seq: 2, kind: db.CallStep, name: "charge", policy: "keyed 1h", undos: 1}, park, ReasonCodeChanged},
		{"a call that was not sent, before a step that is done", []db.Step{call(1, db.StepNotSent), tx(2, db.StepDone)}, canceled, 0, charge, replay, ""},
		{"a call that was not sent, before another", []db.Step{call(1, db.StepNotSent), {Seq: 2, Kind: db.CallStep, Name: "ship", Outcome: db.StepNotSent}}, canceled, 0, charge, unwind, ""},
		{"another kind", []db.Step{tx(1, db.StepDone)}, flags{}, 0, charge, park, ReasonCodeChanged},
		{"another name", []db.Step{{Seq: 1, Kind: db.CallStep, Name: "pay", Outcome: db.StepDone}}, canceled, 0, charge, park, ReasonCodeChanged},
		{"another name, WithoutCode", []db.Step{{Seq: 1, Kind: db.CallStep, Name: "pay", Outcome: db.StepDone}}, flags{canceled: true, withoutCode: true}, 0, charge, unwind, ""},
		{"another name, WithoutCode, in doubt", []db.Step{{Seq: 1, Kind: db.CallStep, Name: "pay", Outcome: db.StepBegun}}, flags{canceled: true, withoutCode: true}, 0, charge, park, ReasonCallInDoubt},
		{"in doubt", []db.Step{call(1, db.StepBegun)}, flags{}, 0, charge, settle, ""},
		{"in doubt, Once", []db.Step{call(1, db.StepBegun)}, flags{}, 0, with(db.PolicyOnce, 0), settle, ""},
		{"in doubt, canceled, Keyed with an undo", []db.Step{call(1, db.StepBegun)}, canceled, 0, charge, settle, ""},
		{"in doubt, canceled, Keyed without an undo", []db.Step{call(1, db.StepBegun)}, canceled, 0, with("keyed 1h", 0), park, ReasonCallInDoubt},
		{"in doubt, canceled, Once", []db.Step{call(1, db.StepBegun)}, canceled, 0, with(db.PolicyOnce, 1), park, ReasonCallInDoubt},
		{"in doubt, canceled, Asked", []db.Step{call(1, db.StepBegun)}, canceled, 0, with(db.PolicyAsked, 0), settle, ""},
		{"in doubt, WithoutCalling", []db.Step{call(1, db.StepBegun)}, flags{canceled: true, withoutCalling: true}, 0, charge, park, ReasonCallInDoubt},
		{"in doubt, WithoutCalling, Asked", []db.Step{call(1, db.StepBegun)}, flags{canceled: true, withoutCalling: true}, 0, with(db.PolicyAsked, 1), settle, ""},
		{"in doubt, after a rejection", []db.Step{call(1, db.StepBegun)}, undoing, 0, with("keyed 1h", 0), settle, ""},
		{"not sent", []db.Step{call(1, db.StepNotSent)}, flags{}, 0, charge, run, ""},
		{"not sent, canceled", []db.Step{call(1, db.StepNotSent)}, canceled, 0, charge, unwind, ""},
		{"a pause", []db.Step{sleep}, flags{}, 0, request{seq: 1, kind: db.SleepStep, name: "nap"}, wait, ""},
		{"a pause, canceled", []db.Step{sleep}, canceled, 0, request{seq: 1, kind: db.SleepStep, name: "nap"}, unwind, ""},
		{"a pause in front of another step", []db.Step{sleep, tx(2, db.StepDone)}, canceled, 0, request{seq: 1, kind: db.SleepStep, name: "nap"}, replay, ""},
		{"a child, canceled", []db.Step{child}, canceled, 0, request{seq: 1, kind: db.ChildStep, name: "ship"}, wait, ""},

		{"an answer", []db.Step{tx(1, db.StepDone)}, flags{}, 0, end(1, exitAnswered), finish, ""},
		{"a rejection", []db.Step{tx(1, db.StepDone)}, flags{}, 0, end(1, exitFinal), unwind, ""},
		{"an error", []db.Step{tx(1, db.StepDone)}, flags{}, 99, end(1, exitFailed), retry, ""},
		{"an error in front of a step", []db.Step{tx(1, db.StepDone)}, flags{}, 99, end(0, exitFailed), retry, ""},
		{"an answer in front of a step", []db.Step{tx(1, db.StepDone)}, flags{}, 0, end(0, exitAnswered), park, ReasonCodeChanged},
		{"a rejection in front of a step", []db.Step{tx(1, db.StepDone)}, flags{}, 0, end(0, exitFinal), park, ReasonCodeChanged},
		{"an answer, canceled", []db.Step{tx(1, db.StepDone)}, canceled, 0, end(1, exitAnswered), unwind, ""},
		{"a rejection, canceled", []db.Step{tx(1, db.StepDone)}, canceled, 0, end(1, exitFinal), unwind, ""},
		{"an error, canceled", []db.Step{tx(1, db.StepDone)}, canceled, 0, end(1, exitFailed), unwind, ""},
		{"an error in front of a step, canceled", []db.Step{tx(1, db.StepDone)}, canceled, 7, end(0, exitFailed), retry, ""},
		{"the eighth error in front of a step, canceled", []db.Step{tx(1, db.StepDone)}, canceled, 8, end(0, exitFailed), park, ReasonFunctionFailed},
		{"an error in front of a step, WithoutCode", []db.Step{tx(1, db.StepDone)}, flags{canceled: true, withoutCode: true}, 7, end(0, exitFailed), retry, ""},
		{"the eighth error in front of a step, WithoutCode", []db.Step{tx(1, db.StepDone)}, flags{canceled: true, withoutCode: true}, 8, end(0, exitFailed), unwind, ""},
		{"an answer in front of a step, WithoutCode", []db.Step{tx(1, db.StepDone)}, flags{canceled: true, withoutCode: true}, 0, end(0, exitAnswered), unwind, ""},
		{"an answer in front of a call in doubt, WithoutCode", []db.Step{call(1, db.StepBegun)}, flags{canceled: true, withoutCode: true}, 0, end(0, exitAnswered), park, ReasonCallInDoubt},
		{"an error in front of a step, after a rejection", []db.Step{tx(1, db.StepDone)}, undoing, 99, end(0, exitFailed), retry, ""},
		{"an answer in front of a call that was not sent, canceled", []db.Step{call(1, db.StepNotSent)}, canceled, 0, end(0, exitAnswered), unwind, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			j := newJournal(test.rows)
			j.runs, j.undoing, j.canceled = test.runs, test.flags.undoing, test.flags.canceled
			j.withoutCalling, j.withoutCode = test.flags.withoutCalling, test.flags.withoutCode
			got := decide(&j, test.ask)
			var reason Reason
			if got.stop != nil {
				reason = got.stop.reason
			}
			if got.do != test.want || reason != test.reason {
				t.Errorf("%+v, want action %d and reason %q", got, test.want, test.reason)
			}
			if got.do == park && (got.stop.step == "" || got.stop.text == "") {
				t.Errorf("it parks without a step or a text: %+v", got.stop)
			}
		})
	}
}

// The outermost of Final, NotSent and Unknown counts. Of joined errors, one in doubt counts.
func TestMeaningOf(t *testing.T) {
	t.Parallel()
	refused, other := errors.New("refused"), errors.New("a timeout")
	doubt, final, unsent := meaning{unknown: true}, meaning{final: true}, meaning{unsent: true}
	for _, test := range []struct {
		err  error
		want meaning
	}{
		{Unknown(Final(refused)), doubt},
		{Unknown(fmt.Errorf("gateway: %w", Final(refused))), doubt},
		{Unknown(NotSent(refused)), doubt},
		{errors.Join(Final(refused), Unknown(refused)), doubt},
		{errors.Join(NotSent(refused), Unknown(refused)), doubt},
		{errors.Join(other, Final(refused)), doubt},
		{errors.Join(NotSent(refused), other), doubt},
		{fmt.Errorf("both providers: %w", errors.Join(NotSent(refused), other)), doubt},
		{other, meaning{}},
		{Final(Unknown(refused)), final},
		{Final(errors.Join(Unknown(refused), refused)), final},
		{fmt.Errorf("%w: %w", errors.New("while charging"), Final(refused)), final},
		{errors.Join(Final(refused), nil, Final(other)), final},
		{fmt.Errorf("no connection: %w", NotSent(refused)), unsent},
		{Final(NotSent(refused)), meaning{final: true, unsent: true}},
		{NotSent(Final(refused)), meaning{final: true, unsent: true}},
	} {
		if got := meaningOf(test.err); got != test.want {
			t.Errorf("%#v says %+v, want %+v", test.err, got, test.want)
		}
	}
}

// The attempt takes a hundred times the limit between two beats, and then stops beating.
func TestBeat_KeepsTheAttemptAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := Keyed(time.Hour).WithHeartbeat(time.Minute)
		ctx, stop := p.watched(t.Context())
		defer stop()
		derived, cancel := context.WithTimeout(ctx, 100*time.Hour)
		defer cancel()
		for range 100 {
			time.Sleep(time.Minute - time.Nanosecond)
			Beat(derived)
			Beat(context.Background()) // of no call
		}
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		time.Sleep(time.Minute + time.Nanosecond)
		if !errors.Is(context.Cause(derived), ErrNoBeat) {
			t.Errorf("behind a minute of silence the cause is %v", context.Cause(derived))
		}
		Beat(derived)
	})
}

// Forget drops the outcomes of an operation that are in memory, as if the process had ended.
func Forget(id string) { outcomesInMemory.forget(id) }
