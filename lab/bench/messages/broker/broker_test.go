package broker_test

import (
	"testing"

	"github.com/idem-go/idem/lab/bench/messages/broker"
)

func TestAudit_CountsLostPhantomRepeatedAndInverted(t *testing.T) {
	t.Parallel()
	committed := []broker.Expected{{ID: "a1", Key: 1, N: 1}, {ID: "a2", Key: 1, N: 2}, {ID: "a3", Key: 1, N: 3}, {ID: "b1", Key: 2, N: 1}, {ID: "b2", Key: 2, N: 2}}
	for _, test := range []struct {
		name string
		came []string // published messages, in order
		want broker.Account
	}{
		{"complete; keys are independent", []string{"b1", "a1", "b2", "a2", "a3"}, broker.Account{}},
		{"lost", []string{"a1", "a3", "b1"}, broker.Account{Lost: 2}},
		{"never committed", []string{"a1", "a2", "a3", "b1", "b2", "x", "x"}, broker.Account{Phantoms: 1}},
		{"a batch twice", []string{"a1", "a2", "a1", "a2", "a3", "b1", "b2", "b2", "b2"}, broker.Account{Twice: 3}},
		{"the third overtakes two", []string{"a3", "a1", "a2", "b1", "b2"}, broker.Account{Inverted: 2}},
		{"one overtaken, then one repeated", []string{"a2", "a1", "a2", "a3", "b1", "b2"}, broker.Account{Inverted: 1, Twice: 1}},
		{"overtaken by the message after a lost one", []string{"a3", "a1", "b1", "b2"}, broker.Account{Lost: 1, Inverted: 1}},
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
