package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/audit"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/session"
	"github.com/idem-go/idem/internal/txn"
)

// ErrTopicTaken is the error of Relay.Run if another recorded relay has one of RelayConfig.Topics.
var ErrTopicTaken = errors.New("outbox: another relay has the topic")

// Errors of ForgetRelay.
var (
	ErrRelayRuns = errors.New("outbox: a process runs the relay")
	ErrNoRelay   = errors.New("outbox: no relay with this name is recorded")
)

// errTopics says that the topics that are recorded for this relay differ from those of this
// process.
var errTopics = errors.New("the recorded topics of the relay have changed")

// topics are the patterns of the topics that a relay publishes, and of topics that belong to other
// relays.
type topics struct {
	own        []string // nil means all topics
	others     []string // the topics of other relays
	generation int64    // increases with every change of the recorded topics of any relay
}

// has reports whether the relay publishes a topic.
func (t *topics) has(topic string) bool {
	matching := func(pattern string) bool { return matches(pattern, topic) }
	return (len(t.own) == 0 || slices.ContainsFunc(t.own, matching)) && !slices.ContainsFunc(t.others, matching)
}

// ownTopics records the topics of a relay, and returns them with those of other relays. It returns
// nil while another process relays other topics under the same Name. If the pool is exhausted,
// ownTopics uses a connection of its own.
func ownTopics(ctx context.Context, pool *pgxpool.Pool, c *RelayConfig) (*topics, error) {
	own, err := c.recordTopics(ctx, &txn.Engine{Pool: pool, Limits: txn.DefaultLimits})
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrTopicTaken) {
		return own, err
	}
	s, openErr := session.Open(ctx, pool, 0, appearance)
	if openErr != nil {
		return nil, err
	}
	defer s.Close()
	return c.recordTopics(ctx, s)
}

func (c *RelayConfig) recordTopics(ctx context.Context, on querier) (*topics, error) {
	for ctx.Err() == nil {
		list := &db.ListTopics{}
		if err := query(ctx, on, list); err != nil {
			return nil, err
		}
		own, recorded, err := c.compare(list.Rows)
		if err != nil || c.Name == "" {
			return own, err
		}
		isFresh := func(r db.RelayTopics) bool { return r.Relay == c.Name && r.Fresh }
		if recorded == 0 && slices.ContainsFunc(list.Rows, isFresh) {
			return nil, nil // another process has just recorded other topics, and is about to begin
		}
		if recorded > 0 {
			outdated := &db.SeeOutdated{Relay: c.Name, Generation: recorded}
			if err := query(ctx, on, outdated); err != nil || !outdated.None {
				return nil, err
			}
			return own, nil
		}
		see := &db.SeeLanes{Relay: c.Name, Lanes: allLanes()}
		if err := query(ctx, on, see); err != nil || !see.Free {
			return nil, err
		}
		record := &db.RecordTopics{Relay: c.Name, Topics: c.Topics, Seen: own.generation}
		if err := query(ctx, on, begin, db.LockTopics{}, record, commit); err != nil {
			return nil, err
		}
	}
	return nil, ctx.Err()
}

func allLanes() []int {
	lanes := make([]int, db.Lanes)
	for i := range lanes {
		lanes[i] = i
	}
	return lanes
}

// compare compares the topics of this relay with the recorded topics of all relays. The result
// recorded is the generation in which these topics of the relay were recorded, or 0 if they are not
// recorded.
func (c *RelayConfig) compare(relays []db.RelayTopics) (own *topics, recorded int64, err error) {
	own = &topics{own: c.Topics}
	for _, other := range relays {
		own.generation = max(own.generation, other.Generation)
		switch {
		case c.Name == "":
			own.others = append(own.others, other.Topics...)
		case c.Name == other.Relay:
			if slices.Equal(c.Topics, slices.Sorted(slices.Values(other.Topics))) {
				recorded = other.Generation
			}
		default:
			for _, topic := range c.Topics {
				i := slices.IndexFunc(other.Topics, func(t string) bool { return overlap(t, topic) })
				if i >= 0 {
					return nil, 0, fmt.Errorf("%w: %q of the relay %q overlaps %q of the relay %q; "+
						"remove the topic from the other relay first, or call ForgetRelay if that relay is gone",
						ErrTopicTaken, topic, c.Name, other.Topics[i], other.Relay)
				}
			}
		}
	}
	return own, recorded, nil
}

// ForgetRelay removes the recorded topics of a relay that does not run any more. Then another relay
// can publish these topics: the relay without a Name, or a relay that has them in its Topics.
// ForgetRelay adds a row to idem.audit. It returns ErrRelayRuns if a process runs the relay, and
// ErrNoRelay if no relay with this name is recorded.
func ForgetRelay(ctx context.Context, pool *pgxpool.Pool, name string) error {
	engine := &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	see := &db.SeeLanes{Relay: name, Lanes: allLanes()}
	if err := query(ctx, engine, see); err != nil {
		return hint(err)
	}
	if !see.Free {
		return fmt.Errorf("%w: %q", ErrRelayRuns, name)
	}
	forget := &db.ForgetTopics{Relay: name}
	tx, err := engine.Open(ctx, db.LockTopics{}, forget)
	if err != nil {
		return hint(err)
	}
	defer tx.Close()
	if len(forget.Rows) == 0 {
		return fmt.Errorf("%w: %q", ErrNoRelay, name)
	}
	note := audit.Note(ctx, db.Forget, "topics given away")
	note.Letter = db.LetterName{Side: "outbox", Consumer: name}
	return hint(tx.Commit(ctx, &note))
}
