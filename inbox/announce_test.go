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
	"github.com/idem-go/idem/lab/pgproxy"
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

// New messages and handled messages are not announced.
func TestBatch_AnnouncesRedeliveriesOnly(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ms, o := messages("m", 4), &observed{}
	announced := map[string]int{}
	look := func(tx pgx.Tx, m inbox.Message) error {
		announced[m.ID] = b.count(`select count(*) from idem.inbox where begun and attempts = 1`)
		return b.record(tx, m)
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
	b := newFixture(t)
	ms := redelivered(messages("m", 1))
	for attempt := 1; attempt < 3; attempt++ {
		b.wantStates("R", b.batch(ms, b.failing("m-0000"), inbox.WithMaxAttempts(3)))
		if n := b.attempts("m-0000"); n != attempt {
			t.Errorf("%d attempts are counted after %d", n, attempt)
		}
		b.due()
	}
	b.wantStates("X", b.batch(ms, b.failing("m-0000"), inbox.WithMaxAttempts(3)))
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
	hindered := func(tx pgx.Tx, m inbox.Message) error {
		_, err := tx.Exec(context.Background(), `do $$ begin raise exception 'no' using errcode = '55P03'; end $$`)
		return err
	}
	b.wantStates("RRR", b.batch(ms, hindered))
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
		"one of a few":   {Messages: 5, Killers: []string{"m-0002"}, Attempts: 2},
		"of one attempt": {Messages: 30, Killers: []string{"m-0017"}, Attempts: 1},
		"two":            {Messages: 100, Killers: []string{"m-0040", "m-0099"}, Attempts: 2},
		"in order":       {Messages: 60, Keys: 7, Killers: []string{"m-0030", "m-0037"}, Attempts: 2},
		"side by side":   {Messages: 8, Killers: []string{"m-0004"}, Attempts: 3, Apart: true},
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
	outcome := make(chan inbox.Outcome, 1)
	second := func(opts ...inbox.Option) {
		o, err := inbox.Handle(context.Background(), b.pool, consumer, ms[1], b.recordID(ms[1].ID), opts...)
		if err != nil {
			t.Error(err)
		}
		outcome <- o
	}
	first := b.batch(ms[:1], func(tx pgx.Tx, m inbox.Message) error {
		second(inbox.WithTurn(0))
		return b.record(tx, m)
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

// One process has claimed a new message, and is about to claim a failed one. Another process
// announces attempts at redeliveries of both.
func TestBatch_AnnouncementDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	p.exec("do $$ begin execute format('alter database %I set deadlock_timeout = 10', current_database()); end $$")
	p.via.Reset()
	p.pool.Reset()
	failing, fresh := message("1"), message("2")
	p.wantStates("R", p.batch([]inbox.Message{failing}, p.failing("1")))
	p.due()
	trap := p.proxy.Arm(pgproxy.Before(pgproxy.Contains("ResumeMessages")), pgproxy.Freeze)
	ms := []inbox.Message{failing, fresh}
	claims := make(chan []inbox.Outcome, 1)
	go func() {
		outcomes, err := inbox.Batch(context.Background(), p.via, consumer, ms, p.record, inbox.WithLimits(limit, limit, limit))
		if err != nil {
			t.Error(err)
		}
		claims <- outcomes
	}()
	frozen := await(t, "the claim", trap.Fired())
	announces := make(chan []inbox.Outcome, 1)
	go func() {
		announces <- p.batch(redelivered([]inbox.Message{failing, fresh}), p.record, inbox.WithLimits(limit, limit, limit))
	}()
	p.awaitBlocked(1)
	frozen.Conn.Resume()
	p.wantStates("dD", await(t, "who has claimed", claims))
	p.wantStates("Dd", await(t, "who has announced", announces))
	p.wantOnce(2)
	p.via.Close() // a session tells the statistics at its end at the latest
	p.pool.Reset()
	for p.count(`select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`) > 0 {
		if t.Context().Err() != nil {
			t.Fatal("sessions are left")
		}
	}
	if n := p.count(`select deadlocks from pg_stat_database where datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}
