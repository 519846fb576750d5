package messaging

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/broker"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/letter"
)

// dayKeys is the number of keys in a run without faults.
const dayKeys = 20

// takeTime adds one letter to the outbox in a slow transaction.
//
// The transaction locks the row of its key from its first write, and may pause for up to a second
// between its steps. A few transactions pause for up to 4 s, and use a key of their own. Some
// letters have a delay, and therefore no key.
func (o *office) takeTime() {
	if o.Slot%2 == 1 && isQuiet() {
		time.Sleep(100 * time.Millisecond)
		return
	}
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	op := o.next()
	l := letter.Letter{ID: letter.NewID(), Topic: letter.Orders, Key: fmt.Sprint("day ", rand.IntN(dayKeys))}
	pause := time.Second
	if rand.IntN(40) == 0 {
		pause, l.Key = 4*time.Second, "long"
	} else if rand.IntN(8) == 0 { // delayed letters need no order
		l.Key, l.Delay = "", 500*time.Millisecond+rand.N(2*time.Second)
	}
	judged := []string{l.ID} // letters whose delay the inquiry checks
	switch rand.IntN(6) {
	case 0:
		l, judged = o.trouble(rand.IntN(len(troubles))), nil
	case 1, 2: // the outbox must always have some of these letters
		l, judged = o.trouble(unnamed), nil
	}
	o.note(letter.Event{Kind: letter.KindSay, Op: op, IDs: judged, Took: l.Delay})
	outcome := o.sayLater(ctx, &l, pause)
	o.note(letter.Event{Kind: letter.KindSaid, Op: op, Outcome: outcome, IDs: judged, Took: l.Delay})
}

const unnamed = 1

// troubles are letters that may be late or stay in the outbox. They must not delay other letters.
var troubles = []struct {
	letter letter.Letter
	first  int // how many are added at the start of the run
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

// begin adds the first letters of each kind of trouble.
func (o *office) begin() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for n := range troubles {
		var letters []letter.Letter
		first := troubles[n].first
		// A direct consumer pauses if all letters that it tries fail. At most five of each kind are
		// added, so that it also tries others.
		if o.Direct {
			first = min(first, 5)
		}
		for range first {
			letters = append(letters, o.trouble(n))
		}
		// The error is ignored: the run is also valid without these letters.
		_ = pgx.BeginFunc(ctx, o.pools[1], func(tx pgx.Tx) error { return putNext(ctx, tx, letters) })
	}
}

// isQuiet reports whether only half of the workers write at present, which is the case two thirds
// of the time. Many concurrent writers could hide defects in the order of the letters.
func isQuiet() bool {
	const turn = 4 * time.Second
	return history.Now()/turn%3 != 0
}

// sayLater adds a letter in a transaction with pauses, and commits it or rolls it back.
func (o *office) sayLater(ctx context.Context, l *letter.Letter, pause time.Duration) history.Outcome {
	tx, err := o.pools[1].Begin(ctx)
	if err != nil {
		return history.Failed
	}
	defer tx.Rollback(context.Background())
	steps := []func() error{
		func() error { return number(ctx, tx, l) },
		func() error { return put(ctx, tx, *l) },
	}
	if rand.IntN(3) == 0 { // the transaction has an id before it writes to the outbox
		steps = append([]func() error{func() error { return mark(ctx, tx) }}, steps...)
	}
	slow := rand.IntN(2 * len(steps)) // pause after step slow%len(steps); 0: after each step
	for i, step := range steps {
		if err := step(); err != nil {
			return history.Failed
		}
		if slow%len(steps) == i || slow == 0 {
			time.Sleep(rand.N(pause))
		}
	}
	if rand.IntN(10) == 0 {
		return history.Undone
	}
	if err := tx.Commit(ctx); err != nil {
		return history.Unknown
	}
	return history.Executed
}

// mark assigns an id to the transaction without writing to the outbox.
func mark(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT pg_current_xact_id()")
	return err
}

// probe logs, until ctx ends, how long an empty round trip to the database and the broker takes.
func (o *office) probe(ctx context.Context) {
	for ctx.Err() == nil {
		const every = 100 * time.Millisecond
		begun := time.Now()
		time.Sleep(every)
		if _, err := o.pools[1].Exec(ctx, "SELECT 1"); err != nil {
			continue
		}
		if _, err := broker.Counters.Send(ctx, o.broker, struct{}{}); err != nil {
			continue
		}
		o.note(letter.Event{Kind: letter.KindProbe, Op: o.next(), Took: time.Since(begun) - every})
	}
}
