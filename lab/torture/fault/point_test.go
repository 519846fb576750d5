package fault

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/lab/pgproxy"
)

func TestWorkerKilledAtAPointLeavesWhatThePointPromises(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for _, flavour := range []string{"", "&default_query_exec_mode=simple_protocol"} {
		for name, effects := range map[Name][]int{
			"kill-after-claim":   {0},
			"kill-in-fn":         {0},
			"kill-before-commit": {0},
			"kill-during-commit": {0, 1},
			"kill-after-commit":  {1},
		} {
			p := newParty(t, c, 1, flavour)
			p.awaitProgress(t, 2)
			injectOne(t, Target{c, p}, name, 1)
			acknowledged := p.halt(t, c)
			if n := lost(t, c, acknowledged); n > 0 {
				t.Errorf("%s%s: %d acknowledged keys are lost", name, flavour, n)
			}
			begun, ended := p.slots[0].progress()
			last := begun[len(begun)-1]
			if ended[len(ended)-1] == last {
				t.Errorf("%s%s: the worker was told of its last call", name, flavour)
			}
			got := count(t, c, "select count(*) from done where key = $1", last)
			if got != effects[0] && got != effects[len(effects)-1] {
				t.Errorf("%s%s: %d effects, want %v", name, flavour, got, effects)
			}
		}
	}
}

func TestStatementsOfTheLibraryAndOfFnAreToldApart(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]struct{ claim, fn bool }{
		db.ClaimSQL:                           {claim: true},
		db.ClaimAtOnceSQL:                     {claim: true},
		db.TakeOverSQL:                        {claim: true},
		"\n" + db.ClaimSQL + "\n":             {claim: true}, // one of several in the simple protocol
		db.LoadSQL:                            {},
		db.CompleteSQL:                        {}, // also an INSERT
		db.CalmSQL:                            {},
		db.ReclaimSQL:                         {},
		db.StillClaimedSQL:                    {},
		db.HolderSQL:                          {},
		db.LiveSQL:                            {},
		"deallocate idem_load":                {},
		"prepare idem_load as " + db.LoadSQL:  {},
		"begin isolation level serializable":  {},
		"COMMIT":                              {},
		"savepoint s":                         {},
		"rollback;":                           {},
		"":                                    {},
		"insert into orders values (1)":       {fn: true},
		"select 1/0":                          {fn: true},
		"-- of fn's own\nselect 1":            {fn: true},
		"insert into idem.records values (1)": {fn: true},
	} {
		s := pgproxy.Statement{SQL: sql}
		if isClaim(s) != want.claim || isOfFn(s) != want.fn {
			t.Errorf("%q: claim %v, of fn %v", sql, isClaim(s), isOfFn(s))
		}
	}
}

// A new statement that claims a key must be added to libraryClaims, or no fault would hit it.
func TestNoOtherStatementOfTheLibraryTakesAKey(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../../queries/records.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range strings.Split(string(source), "-- name: ")[1:] {
		takes := strings.Contains(query, "set_config('idem.claim'") && strings.Contains(query, "INSERT")
		if got := slices.Contains(libraryClaims, firstWord(query)); got != takes {
			t.Errorf("%s: is a claim: %v, is taken for one: %v", firstWord(query), takes, got)
		}
	}
}

func TestClientIsNotToldOfACommitThatIsLost(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := proxies(t, c, 1)
	for name, committed := range map[Name][]int{
		"lose-commit":        {0},
		"lose-commit-race":   {0, 1},
		"lose-commit-answer": {1},
	} {
		for seed := range uint64(5) { // by reset, hangup and black hole
			conn := connect(t, p.slots[0].proxy.DSN())
			var err error
			var last string
			event := whileInjecting(t, Target{c, p}, name, seed, func(n int) bool {
				last = fmt.Sprint(name, seed, "-", n)
				err = query(t, conn, "begin; insert into done values ('"+last+"')")
				if err == nil {
					err = query(t, conn, "commit")
				}
				return err == nil
			})
			if err == nil {
				t.Errorf("%s by %s: the client was told of each commit", name, event.Detail)
			}
			awaitNoSession(t, c)
			got := count(t, c, "select count(*) from done where key = $1", last)
			if got != committed[0] && got != committed[len(committed)-1] {
				t.Errorf("%s by %s: %d rows, want %v", name, event.Detail, got, committed)
			}
		}
	}
}

func TestLateCommitIsStillACommit(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := proxies(t, c, 1)
	conn := connect(t, p.slots[0].proxy.DSN())
	for name, early := range map[Name]int{"late-commit": 0, "late-commit-answer": 1} {
		mustExec(t, c, "truncate done")
		n := 0
		var there [2]int                                                                 // how often others saw no row, or the row, while the client waited
		for seed := uint64(1); there[early] <= there[1-early] && seed <= tries; seed++ { // one may be too short to see anything
			there = [2]int{}
			whileInjecting(t, Target{c, p}, name, seed, func(int) bool {
				n++
				if err := query(t, conn, "begin; insert into done values ('x')"); err != nil {
					t.Fatal(err)
				}
				told := make(chan error, 1)
				go func() { told <- query(t, conn, "commit") }()
				for len(told) == 0 {
					there[count(t, c, "select count(*) from done")-(n-1)]++
				}
				if err := <-told; err != nil {
					t.Error(err)
				}
				return true
			})
		}
		if there[early] <= there[1-early] || count(t, c, "select count(*) from done") != n {
			t.Errorf("%s: others did not see the row %d times, and saw it %d times", name, there[0], there[1])
		}
	}
}

func TestCallWhoseClaimIsNotAnsweredExecutesOnce(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := proxies(t, c, 1)
	proxy := p.slots[0].proxy
	var executed, told atomic.Int64
	proxy.Observe(func(e pgproxy.Event) {
		switch {
		case !isClaim(e.Statement) || e.Tag != "INSERT 0 1":
		case e.Stage == pgproxy.Answered:
			executed.Add(1)
		case e.Stage == pgproxy.Delivered:
			told.Add(1)
		}
	})
	pool, err := pgxpool.New(within(t), proxy.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	keys := 0
	whileInjecting(t, Target{c, p}, "lose-claim-answer", 1, func(n int) bool {
		key := fmt.Sprint(n)
		_, err := idem.Do(within(t), pool, "fault", key, idem.Hash{1}, func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(within(t), "insert into done values ($1)", key)
			return idem.Response{}, err
		})
		if err != nil {
			t.Error(err)
		}
		keys++
		return true
	})
	if executed.Load() != told.Load()+1 {
		t.Errorf("%d claims were executed, %d were answered", executed.Load(), told.Load())
	}
	if got := count(t, c, "select count(*) from done"); got != keys || lost(t, c, nil) > 0 {
		t.Errorf("%d effects of %d keys", got, keys)
	}
}
