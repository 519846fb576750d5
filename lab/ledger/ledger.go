package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox"
)

// An effect has no unique index: nothing but the inbox keeps a message from having two.
const tables = `
CREATE TABLE keys (key text PRIMARY KEY, n integer NOT NULL DEFAULT 0);
CREATE TABLE said (id text PRIMARY KEY, key text NOT NULL, n integer NOT NULL, poison boolean NOT NULL);
CREATE TABLE effects (seq bigint GENERATED ALWAYS AS IDENTITY, id text NOT NULL, key text NOT NULL, n integer NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(), session integer NOT NULL DEFAULT pg_backend_pid(), tx xid8 NOT NULL DEFAULT pg_current_xact_id())`

// Create makes the tables.
func Create(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, tables)
	return err
}

// Unsay does what Say does, and rolls back.
func Unsay(ctx context.Context, pool *pgxpool.Pool, topic, key string, messages int) error {
	err := say(ctx, pool, topic, key, messages, func() bool { return false }, errUnsaid)
	if errors.Is(err, errUnsaid) {
		return nil
	}
	return err
}

// Say says messages of one key in one transaction, which holds the lock on the row of the key.
func Say(ctx context.Context, pool *pgxpool.Pool, topic, key string, messages int, poison func() bool) error {
	return say(ctx, pool, topic, key, messages, poison, nil)
}

func say(ctx context.Context, pool *pgxpool.Pool, topic, key string, messages int, poison func() bool, end error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var n int
		err := tx.QueryRow(ctx, `INSERT INTO keys VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET n = keys.n + $2 RETURNING n`, key, messages).Scan(&n)
		if err != nil {
			return err
		}
		said := make([]outbox.Message, messages)
		for i := range said {
			kind := "sound"
			if poison() {
				kind = "poison"
			}
			said[i] = outbox.Message{ID: newID(), Topic: topic, Key: key, Type: "Said", Payload: fmt.Appendf(nil, "%s %d", kind, n-messages+1+i)}
			if _, err := tx.Exec(ctx, `INSERT INTO said VALUES ($1, $2, $3, $4)`, said[i].ID, key, n-messages+1+i, kind == "poison"); err != nil {
				return err
			}
		}
		return errors.Join(outbox.Add(ctx, tx, said...), end)
	})
}

func newID() string {
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", rand.Uint32(), rand.N(1<<16), rand.N(1<<12), rand.N(1<<12), rand.Uint64N(1<<48))
}

var (
	errPoison = errors.New("the message is poison")
	errFlaky  = errors.New("this time it does not work")
	errUnsaid = errors.New("it is rolled back")
	errForgot = errors.New("nobody knows that they are published")
)

// Take is what handlers do with a message: poison fails each time, and one in flaky others fails by chance.
func Take(ctx context.Context, tx pgx.Tx, id, key string, payload []byte, flaky int) error {
	kind, n, _ := strings.Cut(string(payload), " ")
	if _, err := tx.Exec(ctx, `INSERT INTO effects (id, key, n) VALUES ($1, $2, $3::text::integer)`, id, key, n); err != nil {
		return err
	}
	switch {
	case kind == "poison":
		return errPoison
	case rand.N(flaky) == 0:
		return errFlaky
	}
	return nil
}

// Forgetful is a publisher that sometimes does not know what it has published.
func Forgetful(publisher outbox.Publisher) outbox.Publisher {
	return outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		err := publisher.Publish(ctx, messages)
		if err == nil && rand.N(10) == 0 {
			return errForgot
		}
		return err
	})
}

// Report is what came of all that was said.
type Report struct {
	Said, Effects, Dead int
	Lost                int // neither an effect nor a dead letter
	Doubled             int // more than one effect, or an effect and a dead letter
	Unsaid              int // effects of messages that were never committed
	Inversions          int // effects that came after that of a later message of their key
	Unjust              int // dead letters of messages that are no poison
	Waiting             int // in the outbox
}

// Read makes a Report.
func Read(ctx context.Context, pool *pgxpool.Pool) (r Report, err error) {
	err = pool.QueryRow(ctx, `
WITH per AS (
  SELECT s.id, s.poison, coalesce(e.n, 0) AS effects, coalesce(d.n, 0) AS dead
  FROM said s LEFT JOIN (SELECT id, count(*) AS n FROM effects GROUP BY id) e ON e.id = s.id
  LEFT JOIN (SELECT id, count(*) AS n FROM idem.dead_letters GROUP BY id) d ON d.id = s.id
), ordered AS (
  SELECT n, lag(n) OVER (PARTITION BY key ORDER BY seq) AS before FROM effects
)
SELECT (SELECT count(*) FROM per), (SELECT count(*) FROM effects), (SELECT coalesce(sum(dead), 0) FROM per),
  (SELECT count(*) FROM per WHERE effects = 0 AND dead = 0), (SELECT count(*) FROM per WHERE effects + dead > 1),
  (SELECT count(*) FROM effects e WHERE NOT EXISTS (SELECT FROM said s WHERE s.id = e.id)),
  (SELECT count(*) FROM ordered WHERE before > n), (SELECT count(*) FROM per WHERE dead > 0 AND NOT poison),
  (SELECT count(*) FROM idem.outbox)`).Scan(&r.Said, &r.Effects, &r.Dead, &r.Lost, &r.Doubled, &r.Unsaid, &r.Inversions, &r.Unjust, &r.Waiting)
	return r, err
}

// Inverted tells of each inversion what happened to its key around it.
func Inverted(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	rows, _ := pool.Query(ctx, `
WITH ordered AS (SELECT *, lag(n) OVER (PARTITION BY key ORDER BY seq) AS before FROM effects)
SELECT format('%s: %s', i.key, string_agg(format('%s at %s (%s, transaction %s)', e.n, to_char(e.at, 'HH24:MI:SS.MS'), e.session, e.tx), ', ' ORDER BY e.seq))
FROM ordered i JOIN effects e ON e.key = i.key AND e.n BETWEEN i.n - 3 AND i.before + 3
WHERE i.before > i.n GROUP BY i.key, i.seq`)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(lines, "\n"), err
}

// Settled reports whether each message that was said has an effect or is a dead letter.
func (r Report) Settled() bool { return r.Said > 0 && r.Lost == 0 && r.Waiting == 0 }

// Broken says which promise is broken, if any is.
func (r Report) Broken() error {
	if r.Lost+r.Doubled+r.Unsaid+r.Inversions+r.Unjust+r.Waiting > 0 || r.Effects+r.Dead != r.Said {
		return fmt.Errorf("not each message had its effect once, in order, or is a dead letter for a reason: %+v", r)
	}
	return nil
}
