package personality_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/personality"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/purge"
)

func withMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode }
}

// The first call returns an UnsupportedError that names the missing feature.
func TestPersonality_FirstCallReportsWhatIsUnsupported(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		*personality.Personality
		mode pgx.QueryExecMode
	}{
		{personality.AuroraDSQL, pgx.QueryExecModeCacheStatement},
		{personality.AuroraDSQL, pgx.QueryExecModeExec},
		{personality.AuroraDSQL, pgx.QueryExecModeSimpleProtocol},
		{personality.CockroachDB, pgx.QueryExecModeSimpleProtocol}, // this mode uses timestamptz_send
	} {
		t.Run(test.Name+"/"+test.mode.String(), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			pool := pgtest.Open(t, pgtest.Personality(t, test.Personality, pgtest.DSN(t), personality.Faults{}).DSN(), withMode(test.mode))
			runs := 0
			fn := func(pgx.Tx) (idem.Response, error) { runs++; return idem.Response{Status: 200}, nil }
			for call, do := range map[string]func() error{
				"Do":          func() error { _, err := idem.Do(ctx, pool, "s", "k", right, fn); return err },
				"Do, no wait": func() error { _, err := idem.Do(ctx, pool, "s", "k", right, fn, idem.WithWait(0)); return err },
				"DoTx": func() error {
					return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { _, err := idem.DoTx(ctx, tx, "s", "k", right, fn); return err })
				},
			} {
				err := do()
				if _, ok := errors.AsType[*idem.UnsupportedError](err); !ok || !errors.Is(err, idem.ErrUnsupported) ||
					!errors.As(err, new(*pgconn.PgError)) || !strings.Contains(err.Error(), "docs/portability.md") || idem.Retryable(err) {
					t.Errorf("%s: %v", call, err)
				}
			}
			if runs > 0 {
				t.Errorf("fn has run %d times", runs)
			}
		})
	}
}

// bare is a personality that no real server has. It refuses the functions that each part of idem
// uses first.
var bare = func() *personality.Personality {
	p := &personality.Personality{Name: "bare", Functions: map[string]personality.Refusal{}}
	for _, name := range []string{"pg_relation_size", "pg_try_advisory_xact_lock", "pg_try_advisory_lock", "pg_advisory_xact_lock",
		"pg_try_advisory_xact_lock_shared", "pg_current_xact_id", "set_config"} {
		p.Functions[name] = personality.Refusal{Code: "42883", Message: "unknown function: " + name + "()"}
	}
	return p
}()

func TestPersonality_EachPackageReportsWhatIsUnsupported(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, pgtest.Personality(t, bare, pgtest.DSN(t), personality.Faults{}).DSN())
	message := outbox.Message{Topic: "t", Key: "k", Type: "T", Payload: []byte("p")}
	for name, begin := range map[string]func(context.Context) error{
		"purge": func(ctx context.Context) error { _, err := purge.Once(ctx, pool, purge.Options{}); return err },
		"outbox": func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return outbox.Add(ctx, tx, message) })
		},
		"relay": func(ctx context.Context) error {
			return outbox.NewRelay(pool, outbox.PublisherFunc(func(context.Context, []outbox.Message) error { return nil }), outbox.RelayConfig{}).Run(ctx)
		},
		"inbox": func(ctx context.Context) error {
			_, err := inbox.Handle(ctx, pool, "c", inbox.Message{Source: "s", ID: "1"}, func(pgx.Tx) error { return nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := begin(t.Context()); !errors.Is(err, idem.ErrUnsupported) {
				t.Errorf("%v", err)
			}
		})
	}
}
