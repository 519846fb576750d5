package fault

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/torture/cluster"
)

func code(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

func TestSessionIsToldWhatTheServerDidToIt(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for name, want := range map[Name]string{"terminate": "57P01", "cancel": "57014"} {
		conn := connect(t, c.DSN())
		told := make(chan error, 1)
		go func() { told <- query(t, conn, "select pg_sleep(60)") }()
		awaitSession(t, c, "wait_event = 'PgSleep'")
		event := injectOne(t, Target{c, proxies(t, c, 1)}, name, 1)
		if got := code(<-told); got != want || event.Detail != "active" {
			t.Errorf("%s: the session that was %q got %q, want %s", name, event.Detail, got, want)
		}
		conn.Close(within(t))
		awaitNoSession(t, c)
	}
	if event := inject(t, Target{c, proxies(t, c, 1)}, "terminate", 1); event != nil {
		t.Errorf("without a session: %+v", *event)
	}
}

func awaitSession(t *testing.T, c *cluster.Cluster, how string) {
	t.Helper()
	eventually(t, how, func() bool { return count(t, c, "select count(*) "+victims+" and "+how) > 0 })
}

// A COMMIT that waits for a standby is durable, however the wait ends.
func TestCommitParkedOnAGhostStandbyIsDurable(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	seen := make(map[string]bool)
	for seed := uint64(0); len(seen) < 3 && seed < 40; seed++ {
		conn := connect(t, c.DSN())
		n := 0
		var err error
		event := whileInjecting(t, Target{c, proxies(t, c, 1)}, "ghost-standby", seed, func(int) bool {
			n++
			err = query(t, conn, fmt.Sprintf("insert into done values ('%d-%d')", seed, n))
			return err == nil
		})
		end, _, _ := strings.Cut(event.Detail, " of ")
		seen[end] = true
		if terminated := end == "pg_terminate_backend"; (err != nil) != terminated {
			t.Errorf("%s: the client got %v", event.Detail, err)
		}
		got := count(t, c, "select count(*) from done where key like $1", fmt.Sprint(seed, "-%"))
		if got != n {
			t.Errorf("%s: %d rows are there, of %d that were committed", event.Detail, got, n)
		}
		conn.Close(within(t))
	}
	if len(seen) < 3 {
		t.Errorf("only these ends were seen: %v", seen)
	}
	mustExec(t, c, "insert into done values ('nothing waits any more')")
}
