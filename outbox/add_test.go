package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/outbox"
)

// all returns messages with every kind of valid contents.
func all() []outbox.Message {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	return []outbox.Message{
		{Topic: "o"},
		{Topic: "orders", Key: "k", Type: "T", Payload: []byte{}},
		{ID: "0190b5c0-7b3a-7000-8000-0123456789AB", Topic: `t'o"p\i{c}`, Key: `k,'e"y\ $1 NULL`, Type: "NULL", Payload: every,
			Headers: map[string]string{"": "", "a": `"'\{},`, "\u2028é": "\x01\u0000"[:1] + "ü", "NULL": "NULL", "n": "1e400", "A": "a"}},
		{Topic: strings.Repeat("t", 255), Key: strings.Repeat("ü", 127), Type: strings.Repeat("y", 255), Payload: make([]byte, 1<<20)},
		{Topic: "t", Headers: map[string]string{}, Payload: []byte(`{"a": 1}`)},
	}
}

// The result does not depend on the query mode of the pool, nor on the settings of the session.
func TestAdd_PreservesMessages(t *testing.T) {
	t.Parallel()
	for name, configure := range map[string]func(*pgxpool.Config){
		"prepared": func(*pgxpool.Config) {},
		"exec":     func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec },
		"simple":   func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol },
		"lease":    behindPooler,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newDatabase(t)
			o.pool = pgtest.Open(t, o.dsn, configure, func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams = map[string]string{"search_path": "nowhere", "bytea_output": "escape",
					"datestyle": "Postgres, DMY", "intervalstyle": "sql_standard", "timezone": "Pacific/Chatham",
					"default_transaction_isolation": "serializable"}
			})
			messages := all()
			half := len(messages) / 2
			err := pgx.BeginFunc(t.Context(), o.pool, func(tx pgx.Tx) error {
				batch := &pgx.Batch{}
				err := errors.Join(outbox.Add(t.Context(), tx, messages[:half]...), outbox.Queue(batch, messages[half:]...))
				return errors.Join(err, tx.SendBatch(t.Context(), batch).Close())
			})
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			b := &broker{before: func([]outbox.Message) error { calls++; return nil }, refuse: func(m *outbox.Message) error {
				if calls < 3 || m.Topic == "o" {
					return errRefused
				}
				return nil
			}}
			config := swift()
			config.MaxAttempts = 5
			o.relay(b, config)
			eventually(t, "the outbox to be empty", func() bool {
				figures, err := outbox.ReadStats(t.Context(), o.pool)
				return err == nil && figures.Waiting+figures.Held == 0
			})
			want, got := map[string]outbox.Message{}, map[string]outbox.Message{}
			messages[4].Headers = nil // empty headers are stored as none
			for _, m := range messages[1:] {
				want[m.ID] = m
			}
			for _, m := range b.all() {
				got[m.ID] = m
			}
			same := cmp.Comparer(func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }) // fast for a million bytes
			if diff := cmp.Diff(want, got, same); diff != "" {
				t.Errorf("(-added +published):\n%s", diff)
			}
			letters := o.letters(outbox.Ref{})
			if len(letters) != 1 || letters[0].ID != messages[0].ID || letters[0].DiedAt.Year() < 2026 {
				t.Errorf("%+v", letters)
			}
		})
	}
}

// The refusal sends nothing, so the transaction stays usable.
func TestAdd_RefusesInvalidMessages(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	tx := o.begin()
	id := outbox.NewID()
	for name, messages := range map[string][]outbox.Message{
		"no topic":             {{Key: "k"}},
		"long topic":           {{Topic: strings.Repeat("t", 256)}},
		"long key":             {{Topic: "t", Key: strings.Repeat("k", 256)}},
		"NUL":                  {{Topic: "t", Key: "secret\x00"}},
		"no UTF-8":             {{Topic: "t", Type: "secret\xff"}},
		"header with NUL":      {{Topic: "t", Headers: map[string]string{"a": "secret\x00"}}},
		"header without UTF-8": {{Topic: "t", Headers: map[string]string{"secret\xff": ""}}},
		"large headers":        {{Topic: "t", Headers: map[string]string{"a": strings.Repeat("x", outbox.MaxHeaders)}}},
		"large payload":        {{Topic: "t", Payload: make([]byte, outbox.MaxPayload+1)}},
		"no UUID":              {{Topic: "t", ID: "secret"}},
		"UUID in braces":       {{Topic: "t", ID: "{" + id[1:35] + "}"}},
		"one ID twice":         {{Topic: "t", ID: id}, {Topic: "t", ID: strings.ToUpper(id)}},
		"the second":           {{Topic: "t"}, {}},
		"a late NotBefore":     {{Topic: "t", NotBefore: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		"an early NotBefore":   {{Topic: "t", NotBefore: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}},
	} {
		for how, err := range map[string]error{"Add": outbox.Add(t.Context(), tx, messages...), "Queue": outbox.Queue(&pgx.Batch{}, messages...)} {
			if !errors.Is(err, outbox.ErrInvalid) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %s: %v", name, how, err)
			}
		}
	}
	if err := outbox.Add(t.Context(), tx); err != nil {
		t.Errorf("no message: %v", err)
	}
	if err := outbox.Add(t.Context(), nil, message("a", "1")); err == nil {
		t.Error("no transaction was no error")
	}
	last := time.Date(9999, 12, 31, 23, 59, 58, 999_999_999, time.UTC)
	o.in(tx, message("a", "1"), delayed("a", "last", last)) // the transaction is still usable
	o.commit(tx)
}

// A transaction that is run again adds its messages under the same IDs.
func TestAdd_WritesIDsIntoTheSlice(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	messages := []outbox.Message{message("a", "1"), message("a", "2"), {ID: "0190B5C0-7B3A-7000-8000-0123456789AB", Topic: "t"}}
	var ids []string
	for range 2 {
		tx := o.begin()
		o.in(tx, messages...)
		ids = append(ids, fmt.Sprint(messages[0].ID, messages[1].ID, messages[2].ID))
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if ids[0] != ids[1] || messages[2].ID != "0190b5c0-7b3a-7000-8000-0123456789ab" {
		t.Errorf("%v", ids)
	}
	version7 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if !version7.MatchString(messages[0].ID) || messages[0].ID == messages[1].ID {
		t.Errorf("%s, %s", messages[0].ID, messages[1].ID)
	}
	before := outbox.NewID()
	time.Sleep(2 * time.Millisecond)
	if after := outbox.NewID(); before >= after {
		t.Errorf("%s was made before %s", before, after)
	}
}

func TestRelay_NeverPublishesARolledBackMessage(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	o.relay(b, swift())
	tx := o.begin()
	o.in(tx, message("a", "1"))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := idem.Do(t.Context(), o.pool, "s", "k", idem.Hash{1}, func(tx pgx.Tx) (idem.Response, error) {
		return idem.Response{}, errors.Join(outbox.Add(t.Context(), tx, message("a", "2")), idem.Reject(idem.Response{Status: 402}))
	})
	if err != nil {
		t.Fatal(err)
	}
	o.add(message("a", "3"))
	o.empty()
	b.wantTypes(t, []string{"3"})
}

// tracer carries the string that the context has under this type.
type tracer struct{}

func (tracer) Carry(ctx context.Context, headers map[string]string) {
	if trace, ok := ctx.Value(tracer{}).(string); ok {
		headers["traceparent"], headers["tracestate"] = trace, "s"
	}
}

func TestAdd_StoresTheHeadersOfTheCarrier(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 64<<10-len("h"))
	trace := map[string]string{"traceparent": "of the request", "tracestate": "s"}
	o := newDatabase(t)
	for name, test := range map[string]struct {
		headers, want map[string]string
		plain         bool
	}{
		"without headers": {want: trace},
		"beside others":   {headers: map[string]string{"a": "b"}, want: map[string]string{"a": "b", "traceparent": "of the request", "tracestate": "s"}},
		"its own stays":   {headers: map[string]string{"traceparent": "mine"}, want: map[string]string{"traceparent": "mine"}},
		"without room":    {headers: map[string]string{"h": large}, want: map[string]string{"h": large}},
		"without a trace": {plain: true},
	} {
		ctx := outbox.WithCarrier(t.Context(), tracer{})
		if !test.plain {
			ctx = context.WithValue(ctx, tracer{}, "of the request") // derived from the context with the Carrier, as that of a request is
		}
		m := outbox.Message{ID: outbox.NewID(), Topic: "orders", Headers: test.headers}
		given := len(test.headers)
		if err := pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error { return outbox.Add(ctx, tx, m) }); err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		var java *string
		if err := o.pool.QueryRow(ctx, `select headers, tracingspancontext from idem.outbox where id = $1`, m.ID).Scan(&got, &java); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" || len(m.Headers) != given {
			t.Errorf("%s: %d headers were given\n%.500s", name, given, diff)
		}
		if has := java != nil && strings.Contains(*java, "traceparent="); has != (got["traceparent"] != "") {
			t.Errorf("%s: tracingspancontext is %v", name, java)
		}
	}
}

// A relay publishes committed messages. So a transaction with messages waits for the disk, although
// synchronous_commit is off. Otherwise a crash of the server could undo the effect of a message
// that consumers have received.
func TestAdd_SurvivesACrashWithAsynchronousCommit(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, "wal_writer_delay=10s", "synchronous_commit=off")
	if err := schema.UpAt(t.Context(), server.DSN()); err != nil {
		t.Fatal(err)
	}
	o := &database{t: t, dsn: server.DSN(), pool: pgtest.Open(t, server.DSN())}
	o.exec(`create table orders (what text not null)`)
	for name, add := range map[string]func(tx pgx.Tx) error{
		"Add": func(tx pgx.Tx) error { // after a savepoint
			return pgx.BeginFunc(context.Background(), tx, func(tx pgx.Tx) error {
				return outbox.Add(context.Background(), tx, message("1", "one"))
			})
		},
		"Queue": func(tx pgx.Tx) error {
			batch := &pgx.Batch{}
			if err := outbox.Queue(batch, message("1", "one")); err != nil {
				return err
			}
			return tx.SendBatch(context.Background(), batch).Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			o.exec(`truncate orders, idem.outbox`)
			o.exec(`checkpoint`)
			err := pgx.BeginFunc(t.Context(), o.pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), `insert into orders (what) values ('an order')`); err != nil {
					return err
				}
				return add(tx)
			})
			if err != nil {
				t.Fatal(err)
			}
			server.Kill()
			<-server.Done()
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			o.pool.Reset()
			if orders, messages := o.count(`select count(*) from orders`), o.count(`select count(*) from idem.outbox`); orders != 1 || messages != 1 {
				t.Errorf("%d orders and %d messages", orders, messages)
			}
		})
	}
}
