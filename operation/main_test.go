package operation_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// The test binary is also the process that a test kills. With these variables set it works on one
// operation, reports when it has come to the point, and stays there until it reads a line.
const (
	victimOf = "IDEM_TEST_VICTIM_OF"
	victimAt = "IDEM_TEST_VICTIM_AT"
	victimIn = "IDEM_TEST_VICTIM_IN"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(companyOf); dsn != "" {
		beCompany(dsn)
	}
	if dsn := os.Getenv(victimOf); dsn != "" {
		beVictim(dsn, os.Getenv(victimAt), os.Getenv(victimIn))
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("8") // the tests mostly wait for the database
	}
	os.Exit(m.Run())
}

func beVictim(dsn, point, in string) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		panic(err)
	}
	var stay sync.Once
	stops := func(at string) {
		if at == point {
			stay.Do(func() {
				fmt.Println("at the point")
				_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
			})
		}
	}
	d := pointed(pool, stops)
	res, err := d.Do(ctx, pool, scope, "k", hashA, in, idem.WithWait(limit))
	fmt.Println("answered", res.Status, res.Replayed, err)
	os.Exit(1)
}

// pointed is an operation that charges a bank table. With the input "reject" it ends in a
// rejection, and is undone.
func pointed(pool *pgxpool.Pool, at func(string)) *operation.Definition[string] {
	return operation.Define("pointed", func(op *operation.Op, in string) (idem.Response, error) {
		_, _ = operation.Tx(op, "reserve", func(tx pgx.Tx) (string, error) {
			at("in reserve")
			return write("reserve")(tx)
		}, operation.UndoTx(func(tx pgx.Tx, _ string) error {
			at("in release")
			return writeUndo("release")(tx)
		}))
		charged, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			at("before the charge")
			defer at("charged")
			return bankTable(ctx, pool, "charge", key)
		}, operation.UndoCall(operation.Keyed(time.Hour), func(ctx context.Context, key, _ string) error {
			defer at("refunded")
			_, err := bankTable(ctx, pool, "refund", key)
			return err
		}))
		_, other := operation.Tx(op, "confirm", func(tx pgx.Tx) (string, error) {
			at("in confirm")
			return write("confirm")(tx)
		})
		if err := first(err, other); err != nil {
			return idem.Response{}, err
		}
		at("behind confirm")
		if in == "reject" {
			return idem.Response{}, idem.Reject(declined)
		}
		return idem.Response{Status: 201, Body: []byte(charged)}, nil
	})
}

// bankTable makes a request to another system, which all processes reach. It recognizes a key.
func bankTable(ctx context.Context, pool *pgxpool.Pool, what, key string) (string, error) {
	_, err := pool.Exec(ctx, `insert into bank (what, key) values ($1, $2) on conflict (key) do update set asked = bank.asked + 1`, what, key)
	return what + "d " + key, err
}

// newBankShop returns a shop whose bank is a table.
func newBankShop(t testing.TB) *shop {
	t.Helper()
	s := newShop(t)
	s.exec(`create table bank (id bigint generated always as identity, what text not null, key text primary key, asked int not null default 1)`)
	return s
}

// victim is a process that works on the operation of the key "k".
type victim struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// newVictim starts a process that stops at a point.
func newVictim(t *testing.T, s *shop, point, in string, env ...string) *victim {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), victimOf+"="+s.dsn, victimAt+"="+point, victimIn+"="+in), env...)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, first(err, cmd.Start()))
	v := &victim{cmd: cmd, in: stdin, out: bufio.NewReader(out)}
	t.Cleanup(v.kill)
	if line, err := v.out.ReadString('\n'); line != "at the point\n" {
		t.Fatalf("the victim said %q, %v", line, err)
	}
	return v
}

func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}
