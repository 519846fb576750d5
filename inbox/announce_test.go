package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

func redelivered(ms []inbox.Message) []inbox.Message {
	for i := range ms {
		ms[i].Deliveries = 2
	}
	return ms
}

func TestBatch_TriesEachRedeliveryAlone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		redelivered string // new, or redelivered
		keys        string
		ordered     bool
		want        string
	}{
		{"nnnn", "    ", false, "[0 1 2 3]"},
		{"nrnr", "    ", false, "[0 2] [1] [3]"},
		{"rrr", "aaa", true, "[0] [1] [2]"},
		{"rnnnn", "aaabb", true, "[3 4] [0] [1 2]"},
		{"nrnrn", "aaaaa", true, "[0] [1] [2] [3] [4]"},
		{"rnn", "   ", true, "[1 2] [0]"},
		{"rnrn", "abba", true, "[1] [0] [2] [3]"},
	} {
		again, keys := make([]bool, len(test.keys)), make([]string, len(test.keys))
		for i := range keys {
			again[i], keys[i] = test.redelivered[i] == 'r', strings.TrimSpace(test.keys[i:i+1])
		}
		got := fmt.Sprint(inbox.Arrange(test.ordered, again, keys))
		if got != "["+test.want+"]" {
			t.Errorf("%s of keys %q: %s, want %s", test.redelivered, test.keys, got, test.want)
		}
	}
}

// Nothing is written ahead for a new message, nor for one that is handled.
func TestBatch_AnnouncesRedeliveriesOnly(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms, o := messages("m", 4), &observed{}
	announced := map[string]int{}
	look := func(tx pgx.Tx, m inbox.Message) error {
		announced[m.ID] = b.count(`select count(*) from idem.inbox where begun and attempts = 1`)
		return b.enter(tx, m)
	}
	b.wantStates("DD", b.batch(ms[:2], look))
	b.wantStates("ddDD", b.batch(redelivered(ms), look, inbox.WithObserver(o)))
	if diff := cmp.Diff(map[string]int{"m-0000": 0, "m-0001": 0, "m-0002": 1, "m-0003": 1}, announced); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
	if o.Transactions != 2 {
		t.Errorf("%d transactions for two redeliveries that are not handled", o.Transactions)
	}
	if n := b.count(`select count(*) from idem.inbox where begun is not null or attempts is not null`); n != 0 {
		t.Errorf("%d announcements are left", n)
	}
}

func TestBatch_CountsAnAnnouncedAttemptOnce(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms := redelivered(messages("m", 1))
	for attempt := 1; attempt < 3; attempt++ {
		b.wantStates("R", b.batch(ms, b.poisoned("m-0000"), inbox.WithMaxAttempts(3)))
		if n := b.attempts("m-0000"); n != attempt {
			t.Errorf("%d attempts are counted after %d", n, attempt)
		}
		b.due()
	}
	b.wantStates("X", b.batch(ms, b.poisoned("m-0000"), inbox.WithMaxAttempts(3)))
	if n := b.count(`select attempts from idem.dead_letters`); n != 3 {
		t.Errorf("dead after %d attempts", n)
	}
}

// Neither a shutdown nor a locked row is a failure of the message.
func TestBatch_WithdrawsTheAnnouncementOfAnInnocentMessage(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms := redelivered(messages("m", 3))
	const earlier = 2
	b.wantStates("RRR", b.batch(ms, b.poisoned("m-0000", "m-0001", "m-0002")))
	b.due()
	b.exec(`update idem.inbox set attempts = $1`, earlier)
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	outcomes, _ := inbox.Batch(ctx, b.pool, consumer, ms, func(pgx.Tx, inbox.Message) error {
		seen = b.count(`select sum(attempts) from idem.inbox where begun`)
		cancel()
		return ctx.Err()
	})
	b.wantStates("RRR", outcomes)
	hindered := func(tx pgx.Tx, m inbox.Message) error {
		_, err := tx.Exec(context.Background(), `do $$ begin raise exception 'no' using errcode = '55P03'; end $$`)
		return err
	}
	b.wantStates("RRR", b.batch(ms, hindered))
	if n := b.count(`select sum(attempts) from idem.inbox where begun is null`); seen != earlier+1 || n != 3*earlier {
		t.Errorf("%d attempts during one, %d of three messages in the end", seen, n)
	}
	b.due()
	b.wantStates("DDD", b.batch(ms, b.enter))
}

func TestBatch_BuriesAMessageThatKillsItsProcess(t *testing.T) {
	t.Parallel()
	const unseen = 1 // a death at the first delivery is not recorded
	for name, v := range map[string]victim{
		"one of a few":   {Messages: 5, Killers: []string{"m-0002"}, Attempts: 2},
		"of one attempt": {Messages: 30, Killers: []string{"m-0017"}, Attempts: 1},
		"two":            {Messages: 100, Killers: []string{"m-0040", "m-0099"}, Attempts: 2},
		"in order":       {Messages: 60, Keys: 7, Killers: []string{"m-0030", "m-0037"}, Attempts: 2},
		"side by side":   {Messages: 8, Killers: []string{"m-0004"}, Attempts: 3, Apart: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			deaths := b.deliverUntil(&v, unseen+len(v.Killers)*v.Attempts)
			if least := unseen + v.Attempts; deaths < least {
				t.Errorf("%d were killed, want %d or more", deaths, least)
			}
			rows, _ := b.pool.Query(t.Context(), `select id || ' ' || class || ' ' || attempts from idem.dead_letters order by id`)
			dead, err := pgx.CollectRows(rows, pgx.RowTo[string])
			var want []string
			for _, id := range v.Killers {
				want = append(want, fmt.Sprint(id, " killed ", v.Attempts))
			}
			if diff := cmp.Diff(want, dead); err != nil || diff != "" {
				t.Errorf("dead letters: %v\n%s", err, diff)
			}
			b.wantOnce(v.Messages - len(v.Killers))
			const inversions = `select count(*) from (
				select id < max(id) over (partition by substring(id, 3)::int % $1 order by n) as late from books) e where late`
			if v.Keys > 0 && b.count(inversions, v.Keys) > 0 {
				t.Error("the effects of a key are not in order")
			}
		})
	}
}

// Such messages take turns in a process: if one kills it, no other pays for that.
func TestBatch_TriesOneUnfinishedMessageAtATime(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms := redelivered(messages("m", 2))
	b.batch(ms, b.poisoned("m-0000", "m-0001"))
	b.exec(`update idem.inbox set begun = true, retry_at = since`)
	outcome := make(chan inbox.Outcome, 1)
	second := func(opts ...inbox.Option) {
		o, err := inbox.Handle(context.Background(), b.pool, consumer, ms[1], b.entering(ms[1].ID), opts...)
		if err != nil {
			t.Error(err)
		}
		outcome <- o
	}
	first := b.batch(ms[:1], func(tx pgx.Tx, m inbox.Message) error {
		second(inbox.WithTurn(0))
		return b.enter(tx, m)
	})
	b.wantStates("D", first)
	if o := await(t, "the other", outcome); o.State != inbox.Retry || !errors.Is(o.Err, inbox.ErrSuspected) {
		t.Errorf("%+v", o)
	}
	second()
	if o := await(t, "the other", outcome); o.State != inbox.Done {
		t.Errorf("%+v", o)
	}
}
