package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
)

// With these variables set, the test binary is a process that messages kill. It handles messages,
// and prints the outcomes if it survives.
const (
	victimOf = "IDEM_TEST_VICTIM_OF"
	victimIs = "IDEM_TEST_VICTIM"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(victimOf); dsn != "" {
		var v victim
		if err := json.Unmarshal([]byte(os.Getenv(victimIs)), &v); err != nil {
			panic(err)
		}
		v.run(dsn)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// victim configures a process that messages kill.
type victim struct {
	Messages   int
	Keys       int      // in order, if there are any
	Killers    []string // ids
	Attempts   int      // WithMaxAttempts
	Deliveries int      // of each message, this time included
}

func (v *victim) messages() []inbox.Message {
	ms := messages("m", v.Messages)
	for i := range ms {
		ms[i].Deliveries = v.Deliveries
		if v.Keys > 0 {
			ms[i].Key = fmt.Sprint(i % v.Keys)
		}
	}
	return ms
}

func (v *victim) options() []inbox.Option {
	opts := []inbox.Option{inbox.WithMaxAttempts(v.Attempts)}
	if v.Keys > 0 {
		opts = append(opts, inbox.WithOrder())
	}
	return opts
}

func (v *victim) run(dsn string) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		panic(err)
	}
	outcomes, err := inbox.Batch(ctx, pool, consumer, v.messages(), func(tx pgx.Tx, m inbox.Message) error {
		if slices.Contains(v.Killers, m.ID) {
			os.Exit(3)
		}
		_, err := tx.Exec(ctx, `insert into books (id) values ($1)`, m.ID)
		return err
	}, v.options()...)
	if err != nil {
		panic(err)
	}
	fmt.Println(states(outcomes))
}

// deliver starts a process that handles the messages, and returns its output, or "" if it was
// killed.
func (b *fixture) deliver(v *victim) string {
	b.t.Helper()
	v.Deliveries++
	is, err := json.Marshal(v)
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimOf+"="+b.pool.Config().ConnString(), victimIs+"="+string(is))
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 3 {
		b.t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// deliverUntil delivers messages until a process reports no Retry. It returns how many processes
// were killed before.
func (b *fixture) deliverUntil(v *victim, atMost int) (deaths int) {
	b.t.Helper()
	for range 10 * atMost {
		switch said := b.deliver(v); {
		case said == "":
			if deaths++; deaths > atMost {
				b.t.Fatalf("%d processes were killed", deaths)
			}
		case !strings.Contains(said, "R"):
			return deaths
		}
	}
	b.t.Fatal("there is no end")
	return 0
}
