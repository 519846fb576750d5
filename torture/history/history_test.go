package history_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/torture/history"
)

func all(uint8) bool { return true }

func call(n uint32, at time.Duration, key string) history.Event {
	return history.Event{
		Shard: history.ShardOf("s", key), At: at, Kind: history.KindCall, Op: history.NewOp(0, 0, n),
		Call: &history.Call{Verb: "Do", Scope: "s", Key: key, Payload: "A", Fn: "ok", TTL: time.Second},
	}
}

func ret(n uint32, at time.Duration, key string) history.Event {
	return history.Event{
		Shard: history.ShardOf("s", key), At: at, Kind: history.KindReturn, Op: history.NewOp(0, 0, n),
		Return: &history.Return{Outcome: history.Executed, OperationID: "x", Digest: "d"},
	}
}

// file writes events to a new file and returns its path.
func file(t *testing.T, events ...history.Event) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history")
	w, err := history.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		w.Append(e)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOperationsComeInTheOrderInWhichTheyBeganFromAllFiles(t *testing.T) {
	t.Parallel()
	run := history.Event{Shard: history.ShardOf("s", "k"), At: 2, Kind: history.KindRun, Op: history.NewOp(0, 0, 1), Run: "x"}
	operations, err := history.Operations([]string{
		file(t, call(1, 1, "k"), run, call(2, 5, "l"), ret(1, 7, "k"), ret(2, 9, "l")),
		file(t, call(3, 3, "k"), ret(3, 4, "k")),
	}, all)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range operations {
		got = append(got, o.Key+" "+o.Op.String()+" "+o.Begin.String()+" "+o.End.String())
	}
	if diff := cmp.Diff([]string{"k w0.0#1 1ns 7ns", "k w0.0#3 3ns 4ns", "l w0.0#2 5ns 9ns"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]history.Run{{At: 2, OperationID: "x"}}, operations[0].Runs); diff != "" {
		t.Error(diff)
	}
}

func TestACallWithoutAReturnIsOpen(t *testing.T) {
	t.Parallel()
	operations, err := history.Operations([]string{file(t, call(1, 1, "k"))}, all)
	if err != nil || len(operations) != 1 || operations[0].Outcome != history.Open || operations[0].End != history.Forever {
		t.Errorf("%v, %v", operations, err)
	}
}

// A process can be killed at any byte: what it had written before counts, and nothing is made of the rest.
func TestATornLastLineIsLeftOut(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(file(t, call(1, 1, "k"), ret(1, 7, "k")))
	if err != nil {
		t.Fatal(err)
	}
	first := strings.IndexByte(string(whole), '\n') + 1
	for end := range len(whole) + 1 {
		path := filepath.Join(t.TempDir(), "torn")
		if err := os.WriteFile(path, whole[:end], 0o644); err != nil {
			t.Fatal(err)
		}
		operations, err := history.Operations([]string{path}, all)
		if err != nil {
			t.Fatalf("torn at %d: %v", end, err)
		}
		returned := len(operations) == 1 && operations[0].Outcome == history.Executed
		if len(operations) != min(end/first, 1) || returned != (end == len(whole)) {
			t.Errorf("torn at %d: %v", end, operations)
		}
	}
}

// A history that is damaged elsewhere is no evidence.
func TestADamagedHistoryIsAnError(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"a line that is no JSON":    "{\"p\":1,\"t\":\n{\"p\":1}\n",
		"a line without its shard":  "{\"t\":1}\n",
		"a return without its call": "{\"p\":1,\"t\":1,\"e\":\"return\",\"o\":1,\"r\":{\"a\":\"executed\"}}\n",
		"an unknown kind":           "{\"p\":1,\"t\":1,\"e\":\"call\",\"o\":1,\"c\":{}}\n{\"p\":1,\"t\":1,\"e\":\"laugh\",\"o\":1}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "damaged")
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			if operations, err := history.Operations([]string{path}, all); err == nil {
				t.Errorf("%v", operations)
			}
		})
	}
	path := file(t, call(1, 1, "k"), call(1, 2, "k"))
	if _, err := history.Operations([]string{path}, all); err == nil {
		t.Error("two calls of one name were accepted")
	}
}

// A history that is read in portions is read once, each key in one piece.
func TestShardsDivideAHistory(t *testing.T) {
	t.Parallel()
	var events []history.Event
	const keys = 100
	for n := range uint32(keys * 3) {
		events = append(events, call(n+1, time.Duration(n), strings.Repeat("k", int(n%keys)+1)))
	}
	path := file(t, events...)
	const portions = 7
	portionOf, seen := make(map[string]int), 0
	for portion := range portions {
		operations, err := history.Operations([]string{path}, func(shard uint8) bool { return int(shard)%portions == portion })
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range operations {
			seen++
			if before, ok := portionOf[o.Key]; ok && before != portion {
				t.Errorf("key %s is in two portions", o.Key)
			}
			portionOf[o.Key] = portion
		}
		if len(operations) == len(events) {
			t.Error("one portion has everything")
		}
	}
	if seen != len(events) {
		t.Errorf("%d of %d calls", seen, len(events))
	}
}

func TestLastIsTheLastWholeLine(t *testing.T) {
	t.Parallel()
	path := file(t, call(1, 1, "k"), history.Event{At: 5, Kind: history.KindExit, Leaks: "one"})
	if last, err := history.Last(path); err != nil || last.Kind != history.KindExit || last.Leaks != "one" {
		t.Errorf("%+v, %v", last, err)
	}
	if last, err := history.Last(file(t)); err != nil || last != nil {
		t.Errorf("%+v, %v", last, err)
	}
}

func TestAnErrorWhileWritingIsToldAtTheEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history")
	w, err := history.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w.Append(func() {}) // which is no JSON
	w.Append(call(1, 1, "k"))
	if err := w.Close(); err == nil {
		t.Error("no error")
	}
	if _, err := history.Create(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("a history was overwritten: %v", err)
	}
}

func TestTheNameOfACallTellsWhoseItIs(t *testing.T) {
	t.Parallel()
	op := history.NewOp(3, 2, 17)
	if op.Slot() != 3 || op.String() != "w3.2#17" {
		t.Errorf("slot %d, %v", op.Slot(), op)
	}
	if op.Process() == history.NewOp(3, 1, 17).Process() || op.Process() != history.NewOp(3, 2, 1).Process() {
		t.Error("processes are not told apart")
	}
}
