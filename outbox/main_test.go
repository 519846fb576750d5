package outbox_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox"
)

// The test binary is also the process that is killed. With this variable it runs a relay that
// reports its first call and then blocks.
const victimOf = "IDEM_TEST_VICTIM_OF"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(victimOf); dsn != "" {
		beVictim(dsn)
	}
	os.Exit(m.Run())
}

func beVictim(dsn string) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err == nil {
		err = outbox.NewRelay(pool, &bus{pool: pool, published: func() {
			fmt.Println("published")
			select {}
		}}, outbox.RelayConfig{}).Run(ctx)
	}
	fmt.Println("unexpected end:", err)
	os.Exit(1)
}

// bus is a broker that stores messages in a table, for several processes.
type bus struct {
	pool      *pgxpool.Pool
	published func()
}

func (b *bus) Publish(ctx context.Context, messages []outbox.Message) error {
	for _, m := range messages {
		if _, err := b.pool.Exec(ctx, `insert into bus (id, key, what) values ($1, $2, $3)`, m.ID, m.Key, m.Type); err != nil {
			return err
		}
	}
	if b.published != nil {
		b.published()
	}
	return nil
}

const createBus = `create table bus (n bigint generated always as identity, id uuid not null, key text not null, what text not null)`

// victim is a process whose relay has published one batch and is blocked.
type victim struct{ cmd *exec.Cmd }

func newVictim(t *testing.T, o *database) *victim {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimOf+"="+o.dsn)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	v := &victim{cmd}
	t.Cleanup(v.kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "published\n" {
		t.Fatalf("the victim said %q, %v", line, err)
	}
	return v
}

func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}
