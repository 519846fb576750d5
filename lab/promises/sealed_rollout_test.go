package promises_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/seal"
)

// versions are the versions of a service as in docs/sealing.md, from before it used sealing until
// after its first key rotation. Each of them runs at the same time as the one before.
var versions = []struct {
	name string
	opts []idem.Option
}{
	{"without a Sealer", nil},
	{"reads both, writes plain", []idem.Option{sealed("a", seal.WritePlain())}},
	{"reads both, writes sealed", []idem.Option{sealed("a", seal.AcceptPlain())}},
	{"refuses plain", []idem.Option{sealed("a")}},
	{"has two keys", []idem.Option{sealed("a b")}},
	{"seals with the new key", []idem.Option{sealed("b a")}},
	{"has dropped the old key", []idem.Option{sealed("b")}},
}

// The test binary is also such a service. If these variables name a database and a version, it
// reads keys from its standard input, makes a call for each, and prints a line with the result.
const (
	instanceOf      = "IDEM_TEST_INSTANCE_OF"
	instanceVersion = "IDEM_TEST_INSTANCE_VERSION"
)

func serveLines(dsn, name string) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		key := input.Text()
		for _, version := range versions {
			if version.name == name {
				fmt.Println(told(idemDo(ctx, pool, scope, key, hashA, func(pgx.Tx) (idem.Response, error) {
					return idem.Response{Header: map[string][]string{"Of": {key}}, Body: []byte(key + ", answered")}, nil
				}, version.opts...)))
			}
		}
	}
	os.Exit(0)
}

// told returns the line that a service prints for a result.
func told(res idem.Result, err error) string {
	for _, known := range []error{seal.ErrUnknownKey, seal.ErrTampered, seal.ErrPlain, idem.ErrUnreadable} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprintf("%s %s replayed=%t %v", res.Body, res.Header["Of"], res.Replayed, err)
}

// instance is a process of one version.
type instance struct {
	t    *testing.T
	name string
	in   io.Writer
	out  *bufio.Reader
	stop func()
}

func startInstance(t *testing.T, dsn, name string) *instance {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), instanceOf+"="+dsn, instanceVersion+"="+name)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	i := &instance{t: t, name: name, in: in, out: bufio.NewReader(out)}
	i.stop = func() { in.Close(); cmd.Wait() }
	t.Cleanup(i.stop)
	return i
}

func (i *instance) call(key string) string {
	i.t.Helper()
	if _, err := fmt.Fprintln(i.in, key); err != nil {
		i.t.Fatal(err)
	}
	line, err := i.out.ReadString('\n')
	if err != nil {
		i.t.Fatalf("%s: %q, %v", i.name, line, err)
	}
	return strings.TrimSpace(line)
}

func (i *instance) want(key, want string) {
	i.t.Helper()
	if got := i.call(key); got != want {
		i.t.Errorf("%s, asked for the key of %q, says %q, want %q", i.name, key, got, want)
	}
}

// executes makes a call and fails the test unless it executes; replays does so unless it is a
// replay.
func (i *instance) executes(key string) {
	i.t.Helper()
	i.want(key, fmt.Sprintf("%s, answered [%s] replayed=false <nil>", key, key))
}

func (i *instance) replays(key string) {
	i.t.Helper()
	i.want(key, fmt.Sprintf("%s, answered [%s] replayed=true <nil>", key, key))
}

// Two processes of each version and of the next run at the same time. Each of them can read what
// the other writes.
func TestSealingIsRolledOutAndItsKeyRotatedWithoutAnUnreadableResponse(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	pool := pgtest.Open(t, dsn)
	sweep := func(where string) {
		t.Helper()
		tag, err := pool.Exec(t.Context(), "delete from idem.records where "+where)
		if err != nil || tag.RowsAffected() == 0 {
			t.Fatalf("%v, %v", tag, err)
		}
	}
	old := startInstance(t, dsn, versions[0].name)
	var written []string
	for n, version := range versions[1:] {
		// The longest TTL has to pass before a version that stops accepting something.
		switch version.name {
		case "refuses plain":
			sweep("sealed_by is null")
			written = nil
			old.executes("sealed before plain is refused")
			written = append(written, "sealed before plain is refused")
		case "has dropped the old key":
			sweep("sealed_by = 'a'")
			written = nil
			old.executes("sealed with the new key")
			written = append(written, "sealed with the new key")
		}
		young := startInstance(t, dsn, version.name)
		for _, key := range written {
			young.replays(key)
		}
		for who, writer := range []*instance{old, young} {
			key := fmt.Sprintf("step %d, process %d", n, who)
			writer.executes(key)
			old.replays(key)
			young.replays(key)
			written = append(written, key)
		}
		old.stop()
		old = young
	}
}

// A skipped step, and a step that is taken too early, have distinct errors.
func TestStepOfARollOutThatIsTakenTooEarlyIsToldApart(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	run := map[string]*instance{}
	for _, version := range versions {
		run[version.name] = startInstance(t, dsn, version.name)
	}
	for _, test := range []struct {
		writer, reader string
		want           error
	}{
		{"reads both, writes sealed", "without a Sealer", idem.ErrUnreadable},
		{"without a Sealer", "refuses plain", seal.ErrPlain},
		{"reads both, writes plain", "refuses plain", seal.ErrPlain},
		{"seals with the new key", "refuses plain", seal.ErrUnknownKey},
		{"has two keys", "has dropped the old key", seal.ErrUnknownKey},
	} {
		key := test.writer + " / " + test.reader
		run[test.writer].executes(key)
		run[test.reader].want(key, test.want.Error())
		run[test.writer].replays(key)
	}
}
