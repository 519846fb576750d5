package inbox_test

import (
	"context"
	"testing"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgproxy"
)

// One process has claimed a message that is new and is about to take one that is to be tried again. Another one, to which both were
// delivered again, announces its attempts at them.
func TestAnnouncementDoesNotDeadlockWithAClaim(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	p.exec("do $$ begin execute format('alter database %I set deadlock_timeout = 10', current_database()); end $$")
	p.via.Reset()
	p.pool.Reset()
	failing, fresh := message("1"), message("2")
	p.wantStates("R", p.batch([]inbox.Message{failing}, p.poisoned("1")))
	p.due()
	trap := p.proxy.Arm(pgproxy.Before(pgproxy.Contains("ResumeMessages")), pgproxy.Freeze)
	ms := []inbox.Message{failing, fresh}
	claims := make(chan []inbox.Outcome, 1)
	go func() {
		outcomes, err := inbox.Batch(context.Background(), p.via, consumer, ms, p.enter, inbox.WithLimits(limit, limit, limit))
		if err != nil {
			t.Error(err)
		}
		claims <- outcomes
	}()
	frozen := await(t, "the claim", trap.Fired())
	announces := make(chan []inbox.Outcome, 1)
	go func() {
		announces <- p.batch(redelivered([]inbox.Message{failing, fresh}), p.enter, inbox.WithLimits(limit, limit, limit))
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
