package inbox_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
)

// The example needs a database, so go test does not run it as one: TestExamplePrintsWhatItSays does.
var (
	ctx  = context.Background()
	pool *pgxpool.Pool
)

// delivery is what a broker's client hands out.
type delivery struct {
	topic, id string
	body      []byte
	delivered int
}

func Example() {
	fetched := []delivery{{"orders", "o-1", []byte("10"), 1}, {"orders", "o-2", []byte("20"), 1}, {"orders", "o-1", []byte("10"), 2}}
	var messages []inbox.Message
	for _, d := range fetched {
		messages = append(messages, inbox.Message{Source: d.topic, ID: d.id, Payload: d.body, Deliveries: d.delivered})
	}
	outcomes, err := inbox.Batch(ctx, pool, "billing", messages, func(tx pgx.Tx, m inbox.Message) error {
		_, err := tx.Exec(ctx, "insert into invoices (amount) values ($1::text::int)", m.Payload)
		return err
	})
	if err != nil {
		fmt.Println("the database is away; all that is Retry comes again:", err)
	}
	for i, o := range outcomes {
		switch o.State {
		case inbox.Retry:
			fmt.Println(fetched[i].id, "comes again at", o.RetryAt, "because of", o.Err)
		default: // Done, Duplicate and Dead
			fmt.Println(fetched[i].id, "is", o.State, "and acknowledged")
		}
	}
	// Prints:
	// o-1 is done and acknowledged
	// o-2 is done and acknowledged
	// o-1 is duplicate and acknowledged
}

func TestExamplePrintsWhatItSays(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	pool = pgtest.New(t)
	if _, err := pool.Exec(ctx, "create table invoices (amount int)"); err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(source), "// Prints:\n")
	want, _, _ = strings.Cut(want, "\n}\n")
	want = strings.ReplaceAll(want, "\t// ", "")
	if diff := cmp.Diff(want, strings.TrimSpace(printed(t, Example))); diff != "" {
		t.Errorf("(-want +printed):\n%s", diff)
	}
}

// printed returns what f prints.
func printed(t *testing.T, f func()) string {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = in
	func() {
		defer func() { os.Stdout = stdout }()
		f()
	}()
	in.Close()
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
