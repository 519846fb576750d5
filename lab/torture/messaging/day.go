package messaging

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/letter"
)

// dayKeys is how many keys are in use on an ordinary day.
const dayKeys = 20

// takeTime puts some letters into the outbox as on an ordinary day, and returns how many: the transaction holds the row of its key from
// its first write on, and pauses for up to a second between its steps, or not. A few take some seconds, and are beside the others.
func (o *office) takeTime() int {
	if o.Slot%2 == 1 && isQuiet() {
		time.Sleep(100 * time.Millisecond)
		return 0
	}
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	op := o.next()
	l := letter.Letter{ID: letter.NewID(), Topic: letter.Orders, Key: fmt.Sprint("day ", rand.IntN(dayKeys))}
	pause := time.Second
	if rand.IntN(40) == 0 {
		pause, l.Key = 4*time.Second, "long"
	} else if rand.IntN(8) == 0 { // its key has no order: it leaves when it is due
		l.Key, l.Delay = "", 500*time.Millisecond+rand.N(2*time.Second)
	}
	judged := []string{l.ID} // whether it is early or late
	switch rand.IntN(6) {
	case 0:
		l, judged = o.trouble(rand.IntN(len(troubles))), nil
	case 1, 2: // so that they never end
		l, judged = o.trouble(unnamed), nil
	}
	o.note(letter.Event{Kind: letter.KindSay, Op: op, Verb: "Add", Letters: 1, IDs: judged, Took: l.Delay})
	outcome, err := o.sayLater(ctx, &l, pause)
	e := letter.Event{Kind: letter.KindSaid, Op: op, Verb: "Add", Outcome: outcome, IDs: judged, Took: l.Delay}
	if err != nil {
		e.Err = err.Error()
	}
	o.note(e)
	return 1
}

const unnamed = 1

// troubles are letters that may be late, or never leave, and may make no other late.
var troubles = []struct {
	letter letter.Letter
	first  int // how many of them there are from the first moment on
}{
	{letter.Letter{Topic: letter.Orders, Fate: letter.Unwanted}, 1000},
	unnamed: {letter.Letter{Topic: letter.Orders, Fate: letter.Unnamed}, 100},
	{letter.Letter{Topic: letter.Slow, Key: "tenant"}, 10},
	{letter.Letter{Topic: letter.Nowhere}, 5},
}

func (o *office) trouble(n int) letter.Letter {
	l := troubles[n].letter
	l.ID, l.Fate = letter.NewID(), o.fit(l.Fate)
	return l
}

// begin puts letters of each trouble into the outbox.
func (o *office) begin() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for n := range troubles {
		var letters []letter.Letter
		first := troubles[n].first
		if o.Direct { // a consumer of which all that it tries fails pauses
			first = min(first, 5)
		}
		for range first {
			letters = append(letters, o.trouble(n))
		}
		op := o.next()
		o.note(letter.Event{Kind: letter.KindSay, Op: op, Verb: "Add", Letters: len(letters)})
		outcome, err := o.sayAll(ctx, letters)
		e := letter.Event{Kind: letter.KindSaid, Op: op, Verb: "Add", Outcome: outcome}
		if err != nil {
			e.Err = err.Error()
		}
		o.note(e)
	}
}

func (o *office) sayAll(ctx context.Context, letters []letter.Letter) (history.Outcome, error) {
	tx, err := o.pools[1].Begin(ctx)
	if err != nil {
		return history.Failed, err
	}
	defer tx.Rollback(context.Background())
	if err := putNext(ctx, tx, letters); err != nil {
		return history.Failed, err
	}
	if err := tx.Commit(ctx); err != nil {
		return history.Unknown, err
	}
	return history.Executed, nil
}

// isQuiet is so most of the time. Every other worker writes nothing then: many that write at a time may hide from each other what they do to
// the order.
func isQuiet() bool {
	const turn = 4 * time.Second
	return history.Now()/turn%3 != 0
}

// sayLater commits a letter with what it tells of, or gives that up.
func (o *office) sayLater(ctx context.Context, l *letter.Letter, pause time.Duration) (history.Outcome, error) {
	tx, err := o.pools[1].Begin(ctx)
	if err != nil {
		return history.Failed, err
	}
	defer tx.Rollback(context.Background())
	steps := []func() error{
		func() error { return number(ctx, tx, l) },
		func() error { return put(ctx, tx, *l) },
	}
	if rand.IntN(3) == 0 { // it has written something before
		steps = append([]func() error{func() error { return mark(ctx, tx) }}, steps...)
	}
	slow := rand.IntN(2 * len(steps)) // behind which it pauses, or behind each
	for i, step := range steps {
		if err := step(); err != nil {
			return history.Failed, err
		}
		if slow%len(steps) == i || slow == 0 {
			time.Sleep(rand.N(pause))
		}
	}
	if rand.IntN(10) == 0 {
		return history.Undone, nil
	}
	if err := tx.Commit(ctx); err != nil {
		return history.Unknown, err
	}
	return history.Executed, nil
}

// mark is a write that has nothing to do with the outbox.
func mark(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT pg_current_xact_id()")
	return err
}

// probe notes again and again how long this process, the database and the broker take for nothing, until ctx ends.
func (o *office) probe(ctx context.Context) {
	for ctx.Err() == nil {
		const every = 100 * time.Millisecond
		begun := time.Now()
		time.Sleep(every)
		if _, err := o.pools[1].Exec(ctx, "SELECT 1"); err != nil {
			continue
		}
		if _, err := o.broker.Standing(ctx); err != nil {
			continue
		}
		o.note(letter.Event{Kind: letter.KindProbe, Op: o.next(), Took: time.Since(begun) - every})
	}
}
