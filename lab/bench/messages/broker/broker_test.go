package broker_test

import (
	"errors"
	"io"
	"testing"

	"github.com/idem-go/idem/lab/bench/messages/broker"
)

func TestAudit_CountsLostMadeUpRepeatedAndOutOfOrder(t *testing.T) {
	t.Parallel()
	committed := []broker.Expected{{ID: "a1", Key: 1, N: 1}, {ID: "a2", Key: 1, N: 2}, {ID: "a3", Key: 1, N: 3}, {ID: "b1", Key: 2, N: 1}, {ID: "b2", Key: 2, N: 2}}
	for _, test := range []struct {
		name string
		came []string
		want broker.Account
	}{
		{"all is well, keys do not wait for each other", []string{"b1", "a1", "b2", "a2", "a3"}, broker.Account{}},
		{"lost", []string{"a1", "a3", "b1"}, broker.Account{Lost: 2}},
		{"of nothing that was committed", []string{"a1", "a2", "a3", "b1", "b2", "x", "x"}, broker.Account{Phantoms: 1}},
		{"a batch again", []string{"a1", "a2", "a1", "a2", "a3", "b1", "b2", "b2", "b2"}, broker.Account{Twice: 3}},
		{"two overtaken by the third", []string{"a3", "a1", "a2", "b1", "b2"}, broker.Account{Inverted: 2}},
		{"one overtaken, then the other again", []string{"a2", "a1", "a2", "a3", "b1", "b2"}, broker.Account{Inverted: 1, Twice: 1}},
		{"overtaken by what is behind a lost one", []string{"a3", "a1", "b1", "b2"}, broker.Account{Lost: 1, Inverted: 1}},
	} {
		sink := broker.NewSink()
		if err := sink.Publish(t.Context(), test.came...); err != nil {
			t.Fatal(err)
		}
		test.want.Committed = len(committed)
		if got := sink.Audit(committed); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestSource_DeliversOneOfTenTwiceAndEndsWhenAllIsAcked(t *testing.T) {
	t.Parallel()
	source := broker.NewSource(100, 0)
	session := source.Open()
	times, before := map[string]int{}, ""
	inARow, again := 0, 0
	for {
		all, err := session.Fetch(t.Context(), 7)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			times[d.ID]++
			if d.ID == before {
				inARow++
			}
			if d.Deliveries == 2 {
				again++
			}
			before = d.ID
			if err := session.Ack(t.Context(), d.Tag); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(times) != 100 || source.Made() != 100 || source.Acked() != 110 || inARow != 5 || again != 5 {
		t.Errorf("%d messages, %d acknowledged, %d twice in a row, %d again", len(times), source.Acked(), inARow, again)
	}
}

func TestSession_RedeliversWhatIsNotAcked(t *testing.T) {
	t.Parallel()
	source := broker.NewSource(3, 0)
	first, second := source.Open(), source.Open()
	all, err := first.Fetch(t.Context(), 3)
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	if err := first.Ack(t.Context(), all[0].Tag); err != nil {
		t.Fatal(err)
	}
	if err := first.Nack(t.Context(), all[1].Tag); err != nil {
		t.Fatal(err)
	}
	first.Close()
	left, err := second.Fetch(t.Context(), 3)
	if err != nil || len(left) != 2 || left[0].ID != all[1].ID || left[1].ID != all[2].ID || left[0].Deliveries != 2 || left[1].Deliveries != 2 {
		t.Fatal(left, err)
	}
	if err := first.Ack(t.Context(), left[0].Tag); err == nil {
		t.Error("a session that has ended acknowledges")
	}
	if source.Left() != 2 {
		t.Errorf("%d are left", source.Left())
	}
	if err := second.Ack(t.Context(), left[0].Tag, left[1].Tag); err != nil || source.Left() != 0 {
		t.Error(err, source.Left())
	}
}
