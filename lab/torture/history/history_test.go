package history_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/torture/history"
)

func call(n uint32, at time.Duration, key string) history.Event {
	return history.Event{
		Shard: history.ShardOf("s", key), At: at, Kind: history.KindCall, Op: history.NewOp(0, 0, n),
		Call: &history.Call{Verb: "Do", Scope: "s", Key: key, Payload: "A", Fn: "ok", TTL: time.Second},
	}
}

func ret(n uint32, at time.Duration, key string) history.Event {
	return history.Event{
		Shard: history.ShardOf("s", key), At: at, Kind: history.KindReturn, Op: history.NewOp(0, 0, n),
		Return: &history.Return{Outcome: history.Executed, ExecutionID: "x", Digest: "d"},
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
	})
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
	if diff := cmp.Diff([]history.Run{{At: 2, ExecutionID: "x"}}, operations[0].Runs); diff != "" {
		t.Error(diff)
	}
}

func TestACallWithoutAReturnIsOpen(t *testing.T) {
	t.Parallel()
	operations, err := history.Operations([]string{file(t, call(1, 1, "k"))})
	if err != nil || len(operations) != 1 || operations[0].Outcome != history.Open || operations[0].End != history.Forever {
		t.Errorf("%v, %v", operations, err)
	}
}

// A process can be killed at any byte. Complete lines count, and the incomplete last line is
// ignored.
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
		operations, err := history.Operations([]string{path})
		if err != nil {
			t.Fatalf("torn at %d: %v", end, err)
		}
		returned := len(operations) == 1 && operations[0].Outcome == history.Executed
		if len(operations) != min(end/first, 1) || returned != (end == len(whole)) {
			t.Errorf("torn at %d: %v", end, operations)
		}
	}
}

// A history that is damaged in another place is an error.
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
			if operations, err := history.Operations([]string{path}); err == nil {
				t.Errorf("%v", operations)
			}
		})
	}
	path := file(t, call(1, 1, "k"), call(1, 2, "k"))
	if _, err := history.Operations([]string{path}); err == nil {
		t.Error("two calls of one name were accepted")
	}
}

// Dividing a history keeps every line exactly once, each key in one part, and its lines in order.
func TestShardsDivideAHistory(t *testing.T) {
	t.Parallel()
	var files []string
	const keys, parts = 100, 7
	for n := range uint32(3) {
		var events []history.Event
		for k := range uint32(keys) {
			key := strings.Repeat("k", int(k)+1)
			events = append(events, call(n*keys+k+1, time.Duration(n), key), ret(n*keys+k+1, time.Duration(n+5), key))
		}
		files = append(files, file(t, events...))
	}
	divided, err := history.Divide(files, t.TempDir(), "part", parts)
	if err != nil || len(divided) != parts {
		t.Fatalf("%d parts, %v", len(divided), err)
	}
	partOf, seen := make(map[string]string), 0
	for _, part := range divided {
		operations, err := history.Operations([]string{part})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range operations {
			if seen++; o.Outcome == history.Open {
				t.Errorf("%v has lost its return", o)
			}
			if before, ok := partOf[o.Key]; ok && before != part {
				t.Errorf("key %s is in two parts", o.Key)
			}
			partOf[o.Key] = part
		}
		if len(operations) == 3*keys {
			t.Error("one part has everything")
		}
	}
	if seen != 3*keys {
		t.Errorf("%d of %d calls", seen, 3*keys)
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
