package broker_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

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

func TestServer_RedeliversWhenAConnectionEnds(t *testing.T) {
	t.Parallel()
	sink, source := broker.NewSink(), broker.NewSource(2, 0)
	server, err := broker.Serve(sink, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first, second := dial(t, server), dial(t, server)
	if err := first.Publish(ctx, "a", "b"); err != nil || sink.Distinct() != 2 {
		t.Fatal(err, sink.Distinct())
	}
	all, err := first.Fetch(ctx, 2)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := first.Fetch(ctx, 2)
		waiting <- err
	}()
	if err := first.Ack(ctx, all[0].Tag); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if err := <-waiting; err == nil {
		t.Error("a connection that has ended fetches")
	}
	again, err := second.Fetch(ctx, 2)
	if err != nil || len(again) != 1 || again[0].ID != all[1].ID {
		t.Fatal(again, err)
	}
	if err := second.Ack(ctx, again[0].Tag); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Fetch(ctx, 2); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func dial(t *testing.T, server *broker.Server) *broker.Client {
	t.Helper()
	client, err := broker.Dial(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestAwaitOrRest_EndsWhenNothingComesAnyMore(t *testing.T) {
	t.Parallel()
	sink := broker.NewSink()
	const rest = 50 * time.Millisecond
	sink.Publish(t.Context(), "again")
	for i := range 10 { // what comes again is a sign of life as well
		time.AfterFunc(time.Duration(i)*rest/2, func() { sink.Publish(t.Context(), "again") })
	}
	begin := time.Now()
	if err := sink.AwaitOrRest(t.Context(), 2, rest); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < rest || sink.Distinct() != 1 {
		t.Errorf("it took %v, and %d have come", took, sink.Distinct())
	}
	sink.Publish(t.Context(), "another")
	if err := sink.AwaitOrRest(t.Context(), 2, time.Hour); err != nil {
		t.Error(err)
	}
	if err := sink.AwaitOrRest(within(t, 0), 3, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
