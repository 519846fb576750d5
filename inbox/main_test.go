package inbox_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
)

// The test binary is also the process that a message kills: with these variables set it handles five messages, is killed by the
// one in the middle, and otherwise prints the outcomes.
const (
	victimOf   = "IDEM_TEST_VICTIM_OF"
	deliveries = "IDEM_TEST_DELIVERIES"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(victimOf); dsn != "" {
		beVictim(dsn)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func beVictim(dsn string) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		panic(err)
	}
	ms := messages("m", 5)
	for i := range ms {
		ms[i].Deliveries, _ = strconv.Atoi(os.Getenv(deliveries))
	}
	outcomes, err := inbox.Batch(ctx, pool, consumer, ms, func(tx pgx.Tx, m inbox.Message) error {
		if m.ID == "m-0002" {
			os.Exit(3)
		}
		_, err := tx.Exec(ctx, `insert into books (id) values ($1)`, m.ID)
		return err
	}, inbox.WithMaxAttempts(2))
	if err != nil {
		panic(err)
	}
	fmt.Println(states(outcomes))
}

func TestMessageThatKillsItsProcessEachTimeIsADeadLetterAndNoOtherIs(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	var said []string
	for delivery := range 6 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimOf+"="+b.pool.Config().ConnString(), deliveries+"="+strconv.Itoa(delivery+1))
		out, err := cmd.Output()
		switch {
		case err == nil:
			said = append(said, string(out))
		case cmd.ProcessState.ExitCode() == 3:
			said = append(said, "killed")
		default:
			t.Fatalf("%v: %s", err, out)
		}
	}
	want := []string{"killed", "killed", "killed", "ddXDD\n", "ddXdd\n", "ddXdd\n"}
	if fmt.Sprint(said) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", said, want)
	}
	b.wantOnce(4)
	if n := b.count(`select count(*) from idem.dead_letters where class = 'killed' and id = 'm-0002'`); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

// Nothing is written for a message that is delivered for the first time, and nothing for one that was handled.
func TestAttemptsAreAnnouncedForRedeliveriesAlone(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms := messages("m", 4)
	var seen int
	look := func(tx pgx.Tx, m inbox.Message) error {
		seen = b.count(`select count(*) from idem.inbox where begun = 1`)
		return b.enter(tx, m)
	}
	b.wantStates("DD", b.batch(ms[:2], look))
	if seen != 0 {
		t.Errorf("%d attempts were announced at the first delivery", seen)
	}
	for i := range ms {
		ms[i].Deliveries = 2
	}
	b.wantStates("ddDD", b.batch(ms, look))
	if seen != 2 {
		t.Errorf("%d attempts were announced at the second delivery, want 2", seen)
	}
	if n := b.count(`select count(*) from idem.inbox where begun is not null or state <> 'handled'`); n != 0 {
		t.Errorf("%d announcements are left", n)
	}
}

func TestAnnouncementIsWithdrawnIfNobodyIsToBlame(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	ms := messages("m", 3)
	for i := range ms {
		ms[i].Deliveries = 2
	}
	ctx, cancel := context.WithCancel(t.Context())
	outcomes, _ := inbox.Batch(ctx, b.pool, consumer, ms, func(pgx.Tx, inbox.Message) error { cancel(); return ctx.Err() })
	b.wantStates("RRR", outcomes)
	if n := b.count(`select count(*) from idem.inbox where begun > 0`); n != 0 {
		t.Errorf("%d are suspects", n)
	}
	b.wantStates("DDD", b.batch(ms, b.enter))
}
