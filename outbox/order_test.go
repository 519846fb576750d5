package outbox_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

func (o *database) begin() pgx.Tx {
	o.t.Helper()
	tx, err := o.pool.Begin(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = tx.Rollback(o.t.Context()) })
	return tx
}

func (o *database) in(tx pgx.Tx, messages ...outbox.Message) {
	o.t.Helper()
	if err := outbox.Add(o.t.Context(), tx, messages...); err != nil {
		o.t.Fatal(err)
	}
}

func (o *database) commit(tx pgx.Tx) {
	o.t.Helper()
	if err := tx.Commit(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

// Other messages leave meanwhile. Later messages of the key exist before the relay rereads the gap
// of the late one.
func TestRelay_PublishesALateCommit(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	entered, release := make(chan struct{}), make(chan struct{})
	b.before = func(messages []outbox.Message) error {
		if messages[0].Type == "the relay is here" {
			close(entered)
			<-release
		}
		return nil
	}
	o.relay(b, swift())
	late := o.begin()
	o.in(late, message("a", "late"))
	o.add(message("b", "the relay is here"))
	await(t, "the relay to be beyond the position of the late message", entered)
	o.commit(late)
	for i := range 5 {
		o.add(message("a", fmt.Sprint("after ", i)))
	}
	close(release)
	o.empty()
	b.wantTypes(t, []string{"late", "after 0", "after 1", "after 2", "after 3", "after 4"}, "a")
}

// A has its transaction id before B, C holds back the horizon of snapshots, and B changes the key
// before A. Neither the order of transaction ids nor that horizon gives the order of the key.
func TestRelay_FollowsTheOrderOfRowLocks(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.exec(`create table account (id text primary key, changes int not null)`)
	o.exec(`insert into account values ('a', 0), ('c', 0)`)
	b := &broker{}
	o.relay(b, swift())
	a, c, second := o.begin(), o.begin(), o.begin()
	for _, tx := range []pgx.Tx{a, c} {
		if _, err := tx.Exec(t.Context(), `select pg_current_xact_id()`); err != nil {
			t.Fatal(err)
		}
	}
	change := func(tx pgx.Tx, what string) {
		t.Helper()
		if _, err := tx.Exec(t.Context(), `update account set changes = changes + 1 where id = 'a'`); err != nil {
			t.Fatal(err)
		}
		o.in(tx, message("a", what))
		o.commit(tx)
	}
	change(second, "B's")
	change(a, "A's")
	eventually(t, "both changes, while a snapshot is open", func() bool { return b.number() == 2 })
	o.commit(c)
	b.wantTypes(t, []string{"B's", "A's"})
}

// keeper is a broker that is an OrderKeeper.
type keeper struct{ broker }

func (*keeper) KeepsOrder() bool { return true }

func (k *keeper) refuseFrom(what string) {
	stuck := map[string]bool{}
	k.refuse = func(m *outbox.Message) error {
		if m.Type == what || stuck[m.Key] {
			stuck[m.Key] = true
			return errRefused
		}
		return nil
	}
}

// It receives all messages of a key in one call.
func TestOrderKeeper_CountsOnlyTheFirstFailure(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	k := &keeper{}
	k.refuseFrom("a2")
	config := swift()
	config.MaxAttempts = 1
	dead := make(chan outbox.DeadLetter, 10)
	config.OnDead = func(d outbox.DeadLetter) {
		k.refuse = nil
		dead <- d
	}
	o.add(message("a", "a1"), message("a", "a2"), message("a", "a3"), message("a", "a4"), message("b", "b1"))
	o.relay(k, config)
	o.empty()
	if d := await(t, "the dead letter", dead); d.Type != "a2" || len(dead) > 0 {
		t.Errorf("%s is dead, and %d others", d.Type, len(dead))
	}
	k.wantTypes(t, []string{"a1", "a3", "a4"}, "a")
	if k.calls != 2 {
		t.Errorf("%d calls", k.calls)
	}
}
