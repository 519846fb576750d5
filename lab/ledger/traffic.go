package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// tables has no unique index on effects: only the inbox prevents a second effect of a message.
const tables = `
CREATE TABLE keys (key text PRIMARY KEY, n integer NOT NULL DEFAULT 0);
CREATE TABLE sent (id text PRIMARY KEY, key text NOT NULL, n integer NOT NULL, poison boolean NOT NULL);
CREATE TABLE effects (seq bigint GENERATED ALWAYS AS IDENTITY, id text NOT NULL, key text NOT NULL, n integer NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(), session integer NOT NULL DEFAULT pg_backend_pid(), tx xid8 NOT NULL DEFAULT pg_current_xact_id())`

var (
	errPoison     = errors.New("the message is poison")
	errRandom     = errors.New("a random failure")
	errRolledBack = errors.New("the transaction is rolled back on purpose")
	errNoResult   = errors.New("the result of Publish was lost")
)

// send adds messages of one key to the outbox in one transaction, which locks the row of the key.
// The messages of a key are numbered in their order. If the error end is set, the transaction rolls
// back.
func send(ctx context.Context, pool *pgxpool.Pool, topic, key string, messages int, poison func() bool, end error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var n int
		err := tx.QueryRow(ctx, `INSERT INTO keys VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET n = keys.n + $2 RETURNING n`, key, messages).Scan(&n)
		if err != nil {
			return err
		}
		sent := make([]outbox.Message, messages)
		for i := range sent {
			kind := "good"
			if poison() {
				kind = "poison"
			}
			sent[i] = outbox.Message{ID: randomID(), Topic: topic, Key: key, Type: "Sent", Payload: fmt.Appendf(nil, "%s %d", kind, n-messages+1+i)}
			if _, err := tx.Exec(ctx, `INSERT INTO sent VALUES ($1, $2, $3, $4)`, sent[i].ID, key, n-messages+1+i, kind == "poison"); err != nil {
				return err
			}
		}
		return errors.Join(outbox.Add(ctx, tx, sent...), end)
	})
}

// randomID returns a UUID of version 4. The order of such IDs is not the order of the messages, in
// contrast to the IDs of outbox.NewID.
func randomID() string {
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", rand.Uint32(), rand.N(1<<16), rand.N(1<<12), rand.N(1<<12), rand.Uint64N(1<<48))
}

// sender sends messages from four goroutines, 1 to 8 in a transaction. One transaction in nine
// rolls back.
type sender struct {
	pool     *pgxpool.Pool
	topic    string
	messages int
	keys     int
	poison   int           // one message in this many is poison: it fails in each attempt
	pause    time.Duration // pause of each goroutine after a transaction
	sent     atomic.Int64
}

func (s *sender) run(ctx context.Context) error {
	const goroutines, most = 4, 8
	var all sync.WaitGroup
	failed := make([]error, goroutines)
	var begun atomic.Int64
	for g := range goroutines {
		all.Go(func() {
			for failed[g] == nil {
				n := 1 + rand.N(most)
				if over := int(begun.Add(int64(n))) - s.messages; over > 0 {
					n -= over
				}
				if n <= 0 {
					return
				}
				key := fmt.Sprint("key ", rand.N(s.keys))
				if rand.N(8) == 0 {
					err := send(ctx, s.pool, s.topic, key, n, func() bool { return false }, errRolledBack)
					if !errors.Is(err, errRolledBack) {
						failed[g] = err
					}
				}
				failed[g] = errors.Join(failed[g], send(ctx, s.pool, s.topic, key, n, func() bool { return rand.N(s.poison) == 0 }, nil))
				s.sent.Add(int64(n))
				time.Sleep(s.pause)
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// Handle is the handler of a message: it inserts an effect. It fails for each poison message, and
// by chance for one in fifty other messages.
func Handle(tx pgx.Tx) error {
	ctx := inbox.Context(tx)
	m, _ := inbox.MessageOf(ctx)
	kind, n, _ := strings.Cut(string(m.Payload), " ")
	if _, err := tx.Exec(ctx, `INSERT INTO effects (id, key, n) VALUES ($1, $2, $3::text::integer)`, m.ID, m.Key, n); err != nil {
		return err
	}
	switch {
	case kind == "poison":
		return errPoison
	case rand.N(50) == 0:
		return errRandom
	}
	return nil
}

// LoseResults returns a Publisher that publishes by publisher. After one in ten successes it
// returns an error.
func LoseResults(publisher outbox.Publisher) outbox.Publisher {
	return outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		err := publisher.Publish(ctx, messages)
		if err == nil && rand.N(10) == 0 {
			return errNoResult
		}
		return err
	})
}

// report counts messages by what happened to them.
type report struct {
	Sent, Effects, Dead int
	Lost                int // neither an effect nor a dead letter
	Repeated            int // more than one effect, or an effect and a dead letter
	RolledBack          int // effects of messages that were never committed
	Inversions          int // effects that came after the effect of a later message with the same key
	WronglyDead         int // dead letters that are not poison
	Waiting             int // messages that are still in the outbox
}

func readReport(ctx context.Context, pool *pgxpool.Pool) (r report, err error) {
	err = pool.QueryRow(ctx, `
WITH per AS (
  SELECT s.id, s.poison, coalesce(e.n, 0) AS effects, coalesce(d.n, 0) AS dead
  FROM sent s LEFT JOIN (SELECT id, count(*) AS n FROM effects GROUP BY id) e ON e.id = s.id
  LEFT JOIN (SELECT id, count(*) AS n FROM idem.dead_letters GROUP BY id) d ON d.id = s.id
), ordered AS (
  SELECT n, lag(n) OVER (PARTITION BY key ORDER BY seq) AS before FROM effects
)
SELECT (SELECT count(*) FROM per), (SELECT count(*) FROM effects), (SELECT coalesce(sum(dead), 0) FROM per),
  (SELECT count(*) FROM per WHERE effects = 0 AND dead = 0), (SELECT count(*) FROM per WHERE effects + dead > 1),
  (SELECT count(*) FROM effects e WHERE NOT EXISTS (SELECT FROM sent s WHERE s.id = e.id)),
  (SELECT count(*) FROM ordered WHERE before > n), (SELECT count(*) FROM per WHERE dead > 0 AND NOT poison),
  (SELECT count(*) FROM idem.outbox)`).
		Scan(&r.Sent, &r.Effects, &r.Dead, &r.Lost, &r.Repeated, &r.RolledBack, &r.Inversions, &r.WronglyDead, &r.Waiting)
	return r, err
}

// describeInversions describes the effects around each inversion.
func describeInversions(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	rows, _ := pool.Query(ctx, `
WITH ordered AS (SELECT *, lag(n) OVER (PARTITION BY key ORDER BY seq) AS before FROM effects)
SELECT format('%s: %s', i.key, string_agg(format('%s at %s (%s, transaction %s)', e.n, to_char(e.at, 'HH24:MI:SS.MS'), e.session, e.tx), ', ' ORDER BY e.seq))
FROM ordered i JOIN effects e ON e.key = i.key AND e.n BETWEEN i.n - 3 AND i.before + 3
WHERE i.before > i.n GROUP BY i.key, i.seq`)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(lines, "\n"), err
}

// isSettled reports whether each sent message has an effect or is a dead letter.
func (r report) isSettled() bool { return r.Sent > 0 && r.Lost == 0 && r.Waiting == 0 }

// err returns an error if a guarantee is broken.
func (r report) err() error {
	if r.Lost+r.Repeated+r.RolledBack+r.Inversions+r.WronglyDead+r.Waiting > 0 || r.Effects+r.Dead != r.Sent {
		return fmt.Errorf("want one effect of each message, in order, or a dead letter of each poison message: %+v", r)
	}
	return nil
}
