package inbox_test

import (
	"context"
	"errors"
	"fmt"
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

// New messages come first, in one transaction. In order, a new message comes behind a redelivered
// one of its key.
func TestBatch_TriesEachRedeliveryAlone(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	o := &observed{}
	for prefix, test := range map[string]struct {
		redelivered, keys string // of each message; r is redelivered
		opts              []inbox.Option
		want              []int
		transactions      int
	}{
		"a": {"nrnr", "abcd", nil, []int{0, 2, 1, 3}, 3},
		"b": {"rrr", "aaa", ordered, []int{0, 1, 2}, 3},
		"c": {"rnnnn", "aaabb", ordered, []int{3, 4, 0, 1, 2}, 3},
		"d": {"nrnrn", "aaaaa", ordered, []int{0, 1, 2, 3, 4}, 5},
		"e": {"rnrn", "abba", ordered, []int{1, 0, 2, 3}, 4},
	} {
		b.exec(`truncate books`)
		ms := messages(prefix, len(test.keys))
		var want []string
		for i := range ms {
			want = append(want, ms[test.want[i]].ID)
			if ms[i].Key = prefix + test.keys[i:i+1]; test.redelivered[i] == 'r' {
				ms[i].Deliveries = 2
			}
		}
		b.batch(ms, b.record, append([]inbox.Option{inbox.WithObserver(o)}, test.opts...)...)
		b.wantEffects(want...)
		if o.Transactions != test.transactions {
			t.Errorf("%s of keys %s: %d transactions, want %d", test.redelivered, test.keys, o.Transactions, test.transactions)
		}
	}
}

// New messages and handled messages are not announced.
func TestBatch_AnnouncesRedeliveriesOnly(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := messages("m", 4)
	announced := map[string]int{}
	look := func(tx pgx.Tx, m inbox.Message) error {
		announced[m.ID] = b.count(`select count(*) from idem.inbox where begun and attempts = 1`)
		return b.record(tx, m)
	}
	b.wantStates("DD", b.batch(ms[:2], look))
	b.wantStates("ddDD", b.batch(redelivered(ms), look))
	if diff := cmp.Diff(map[string]int{"m-0000": 0, "m-0001": 0, "m-0002": 1, "m-0003": 1}, announced); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
	if n := b.count(`select count(*) from idem.inbox where begun is not null or attempts is not null`); n != 0 {
		t.Errorf("%d announcements are left", n)
	}
}

func TestBatch_CountsAnAnnouncedAttemptOnce(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := redelivered(messages("m", 1))
	for _, want := range []string{"R", "R", "X"} {
		b.wantStates(want, b.batch(ms, b.failing("m-0000"), inbox.WithMaxAttempts(3)))
		b.due()
	}
	if n := b.count(`select attempts from idem.dead_letters`); n != 3 {
		t.Errorf("dead after %d attempts", n)
	}
}

// A shutdown or a locked row does not count as an attempt.
func TestBatch_WithdrawsAnAnnouncement(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := redelivered(messages("m", 3))
	const earlier = 2
	b.wantStates("RRR", b.batch(ms, b.failing("m-0000", "m-0001", "m-0002")))
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
	b.wantStates("RRR", b.batch(ms, func(tx pgx.Tx, m inbox.Message) error { return raise("55P03")(tx) }))
	if n := b.count(`select sum(attempts) from idem.inbox where begun is null`); seen != earlier+1 || n != 3*earlier {
		t.Errorf("%d attempts during one, %d of three messages in the end", seen, n)
	}
	b.due()
	b.wantStates("DDD", b.batch(ms, b.record))
}

func TestBatch_BuriesAMessageThatKillsItsProcess(t *testing.T) {
	t.Parallel()
	const unseen = 1 // a death at the first delivery is not recorded
	for name, v := range map[string]victim{
		"of one attempt": {Messages: 30, Killers: []string{"m-0017"}, Attempts: 1},
		"two in order":   {Messages: 60, Keys: 7, Killers: []string{"m-0030", "m-0037"}, Attempts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
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

// If one of them kills the process, no attempt of the others counts.
func TestBatch_TriesOneUnfinishedMessageAtATime(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms := redelivered(messages("m", 2))
	b.batch(ms, b.failing("m-0000", "m-0001"))
	b.exec(`update idem.inbox set begun = true, retry_at = since`)
	var beside inbox.Outcome
	b.wantStates("D", b.batch(ms[:1], func(tx pgx.Tx, m inbox.Message) error {
		beside = b.batch(ms[1:], b.record, inbox.WithTurn(0))[0]
		return b.record(tx, m)
	}))
	if beside.State != inbox.Retry || !errors.Is(beside.Err, inbox.ErrSuspected) {
		t.Errorf("%+v", beside)
	}
	b.wantStates("D", b.batch(ms[1:], b.record))
}
