package promises_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// The test binary is also the process that is killed. If this variable names a database, the
// process makes one call, reports that fn has made its write, and blocks in fn.
const victimOf = "IDEM_TEST_VICTIM_OF"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(victimOf); dsn != "" {
		victim(dsn)
	}
	if dsn := os.Getenv(instanceOf); dsn != "" {
		serveLines(dsn, os.Getenv(instanceVersion))
	}
	os.Exit(m.Run())
}

func victim(dsn string) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err == nil {
		_, err = idemDo(ctx, pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
			if _, err := tx.Exec(ctx, "insert into ledger (key) values ('k')"); err != nil {
				return idem.Response{}, err
			}
			fmt.Println("in fn")
			select {}
		})
	}
	fmt.Println("unexpected end:", err)
	os.Exit(1)
}

func TestKeyOfAKilledProcessIsFreeOnceItsSessionHasEnded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l := ledgerOn(t, pgtest.Open(t, dsn))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimOf+"="+dsn)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "in fn\n" {
		t.Fatalf("victim said %q, %v", line, err)
	}
	holding := `exists (select from pg_stat_activity where datname = current_database() and state = 'idle in transaction')`
	awaitTrue(t, l.pool, "select "+holding)
	if _, err := idemDo(t.Context(), l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0)); err == nil {
		t.Fatal("the victim does not hold the key")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	awaitTrue(t, l.pool, "select not "+holding)
	if _, err := idemDo(t.Context(), l.pool, scope, "k", hashA, l.charge("k"), idem.WithWait(0)); err != nil {
		t.Fatal(err)
	}
	t.Logf("executed %v after the kill", time.Since(killed))
	l.wantOnce("k")
}
