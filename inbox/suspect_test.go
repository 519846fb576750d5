package inbox_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

func TestMessageThatKillsItsProcessEachTimeIsADeadLetterAndNoOtherIs(t *testing.T) {
	t.Parallel()
	const (
		unseen  = 1 // deaths at a first delivery, of which nothing is on record
		company = 4 // at most, of a killer and others that were with it
	)
	for name, v := range map[string]victim{
		"one of a few":         {Messages: 5, Killers: []string{"m-0002"}, Attempts: 2},
		"only one":             {Messages: 1, Killers: []string{"m-0000"}, Attempts: 2},
		"of one attempt":       {Messages: 30, Killers: []string{"m-0017"}, Attempts: 1},
		"of three attempts":    {Messages: 100, Killers: []string{"m-0050"}, Attempts: 3},
		"two":                  {Messages: 300, Killers: []string{"m-0100", "m-0299"}, Attempts: 2},
		"one of a thousand":    {Messages: 1000, Killers: []string{"m-0333"}, Attempts: 2},
		"in order":             {Messages: 200, Keys: 7, Killers: []string{"m-0100", "m-0107"}, Attempts: 2},
		"in order, of one key": {Messages: 100, Keys: 1, Killers: []string{"m-0003", "m-0090"}, Attempts: 1},
		"side by side":         {Messages: 8, Killers: []string{"m-0004"}, Attempts: 2, Apart: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			deaths := b.deliverUntil(&v, unseen+len(v.Killers)*(company+v.Attempts))
			t.Logf("%d were killed", deaths)
			if least := unseen + v.Attempts; deaths < least {
				t.Errorf("%d were killed, want %d at least", deaths, least)
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

func TestWhatAKilledProcessHadInHandIsTriedAgainInAFewTransactions(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]int{"": 0, "in order": 40} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			v := &victim{Messages: 1000, Keys: keys, Killers: []string{"m-0999"}, Attempts: 10, Deliveries: 1}
			if said := b.deliver(v); said != "" {
				t.Fatal(said)
			}
			if n := b.count(`select count(*) from idem.inbox where begun = 1`); n != 1000 {
				t.Fatalf("%d are suspects", n)
			}
			b.exec(`create sequence writes;
				create function write() returns trigger language plpgsql as $$ begin perform nextval('writes'); return null; end $$;
				create trigger writes after insert or update on idem.inbox execute function write()`)
			o := &observed{}
			b.wantStates(strings.Repeat("D", 1000), b.batch(v.messages(), b.enter, append(v.options(), inbox.WithObserver(o))...))
			b.wantOnce(1000)
			// Of each group: announced by two kinds of writing, claimed by one that finds its rows, and then by another one.
			transactions, writes := o.Transactions, b.count(`select last_value from writes`)
			t.Logf("%d transactions, %d writes", transactions, writes)
			if transactions > 10 || writes > 40 {
				t.Errorf("%d transactions, %d writes", transactions, writes)
			}
		})
	}
}

// Others may have killed the process each time.
func TestMessageNeverDiesOfWhatHappenedInCompany(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms := redelivered(messages("m", 3))
	b.batch(ms, b.enter)
	b.exec(`delete from books`)
	b.exec(`update idem.inbox set state = 'failing', attempts = 0, begun = 1000, retry_at = since`)
	b.wantStates("DDD", b.batch(ms, b.enter, inbox.WithMaxAttempts(1)))
}

func TestMessageThatHasDiedAloneStaysAloneUntilItIsKnownHowItEnds(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms := redelivered(messages("m", 16))
	b.batch(ms, b.enter)
	b.exec(`update idem.inbox set state = 'failing', attempts = 0, begun = 1, alone = 1, retry_at = since`)
	o := &observed{}
	fn := func(tx pgx.Tx, m inbox.Message) error {
		if m.ID == ms[0].ID {
			return errPoison
		}
		return b.enter(tx, m)
	}
	b.exec(`truncate books`)
	b.wantStates("R"+strings.Repeat("D", 15), b.batch(ms, fn, inbox.WithObserver(o)))
	if o.Transactions != 16 {
		t.Errorf("%d transactions", o.Transactions)
	}
	if n := b.count(`select count(*) from idem.inbox where begun is not null or alone is not null`); n != 0 {
		t.Errorf("%d are suspects, and it is known how they have ended", n)
	}
}

func TestMessagesAreTriedInGroupsThatShrinkWithTheirSuspicion(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		suspicion []int
		keys      string
		ordered   bool
		want      string // the sizes of the groups
	}{
		{"none", make([]int, 1000), "", false, "1000"},
		{"all once", slices.Repeat([]int{1}, 1000), "", false, "125 125 125 125 125 125 125 125"},
		{"few once", slices.Repeat([]int{1}, 3), "", false, "1 1 1"},
		{"twice", slices.Repeat([]int{2}, 64), "", false, "8 8 8 8 8 8 8 8"},
		{"many twice", slices.Repeat([]int{2}, 200), "", false, "16 16 16 16 16 16 16 16 16 16 16 16 8"},
		{"often", slices.Repeat([]int{3}, 19), "", false, "2 2 2 2 2 2 2 2 2 1"},
		{"alone", []int{9, 9, 9}, "", false, "1 1 1"},
		{"calm ones first", []int{5, 0, 1, 0, 0, 1}, "", false, "3 1 1 1"},
		{"a hot key behind a killer", []int{9, 0, 0, 0, 0, 0, 0}, "aaaaaab", true, "1 1 5"},
		{"a key in descending order", []int{2, 1, 1, 0, 0, 0}, "aaaaaa", true, "1 1 1 3"},
		{"without a key there is no order", []int{9, 0, 0}, "   ", true, "2 1"},
	} {
		groups := inbox.Arrange(test.ordered, test.suspicion, keysOf(test.keys, len(test.suspicion)))
		var sizes []string
		for _, group := range groups {
			sizes = append(sizes, fmt.Sprint(len(group)))
		}
		if got := strings.Join(sizes, " "); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func keysOf(letters string, n int) []string {
	keys := make([]string, n)
	for i, letter := range letters {
		keys[i] = strings.TrimSpace(string(letter))
	}
	return keys
}

func TestOrderOfAKeyIsKeptHoweverMuchItsMessagesAreSuspected(t *testing.T) {
	t.Parallel()
	for range 2000 {
		n := 1 + rand.N(200)
		suspicion, keys := make([]int, n), make([]string, n)
		for i := range n {
			suspicion[i], keys[i] = max(0, rand.N(8)-rand.N(8)), fmt.Sprint(rand.N(1+rand.N(20)))
		}
		last, seen := map[string]int{}, 0
		for _, group := range inbox.Arrange(true, suspicion, keys) {
			for _, i := range group {
				if before, ok := last[keys[i]]; ok && before > i {
					t.Fatalf("%d comes behind %d: %v, %v", i, before, suspicion, keys)
				}
				if suspicion[i] != suspicion[group[0]] || suspicion[i] >= 4 && len(group) > 1 {
					t.Fatalf("a group of %v: %v", group, suspicion)
				}
				last[keys[i]] = i
				seen++
			}
		}
		if seen != n {
			t.Fatalf("%d of %d are tried", seen, n)
		}
	}
}
