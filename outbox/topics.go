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

// ErrTopicTaken says that a topic of a Relay is one of another Relay that is on record.
var ErrTopicTaken = errors.New("outbox: another relay has the topic")

// What ForgetRelay refuses.
var (
	ErrRelayRuns = errors.New("outbox: a process runs the relay")
	ErrNoRelay   = errors.New("outbox: there is no such relay on record")
)

// errTopics says that the topics of this relay, as they are recorded, are not those of this process any more.
var errTopics = errors.New("the topics of a relay have changed")

// topics are those of a relay, as the database has them.
type topics struct {
	own        []string // names, or beginnings of names; nil means all topics
	others     []string // of other relays
	like       []string // the same as patterns of LIKE
	foreign    []string
	generation int64 // of the topics of all relays
}

// has reports whether a topic is one of the relay.
func (t *topics) has(topic string) bool {
	matching := func(pattern string) bool { return matches(pattern, topic) }
	return (len(t.own) == 0 || slices.ContainsFunc(t.own, matching)) && !slices.ContainsFunc(t.others, matching)
}

// ownTopics puts the topics of a relay on record, and finds out those of the others. It returns nil while a process that is there
// relays by the topics of before.
func ownTopics(ctx context.Context, pool *pgxpool.Pool, c *RelayConfig) (*topics, error) {
	own, err := c.settleTopics(ctx, &txn.Engine{Pool: pool, Limits: txn.DefaultLimits})
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrTopicTaken) {
		return own, err
	}
	beside, openErr := session.Open(ctx, pool, 0, appearance) // the pool may be used up
	if openErr != nil {
		return nil, err
	}
	defer beside.Close()
	return c.settleTopics(ctx, beside)
}

// asker makes a round trip.
type asker interface {
	Query(ctx context.Context, requests ...txn.Request) error
}

func (c *RelayConfig) settleTopics(ctx context.Context, engine asker) (*topics, error) {
	for ctx.Err() == nil {
		list := &db.ListTopics{}
		if err := ask(ctx, engine, list); err != nil {
			return nil, err
		}
		known, recorded, err := c.compare(list.Rows)
		if err != nil || c.Name == "" {
			return known, err
		}
		if recorded == 0 && slices.ContainsFunc(list.Rows, func(r db.RelayTopics) bool { return r.Relay == c.Name && r.Fresh }) {
			return nil, nil // another process of this relay, with other topics, is about to begin
		}
		if recorded > 0 {
			outdated := &db.SeeOutdated{Relay: c.Name, Generation: recorded}
			if err := ask(ctx, engine, outdated); err != nil || !outdated.None {
				return nil, err
			}
			return known, nil
		}
		see := &db.SeeLanes{Relay: c.Name, Lanes: everyLane()}
		if err := ask(ctx, engine, see); err != nil || !see.Free {
			return nil, err
		}
		record := &db.RecordTopics{Relay: c.Name, Topics: c.Topics, Seen: known.generation}
		if err := ask(ctx, engine, begin, db.LockTopics{}, record, commit); err != nil {
			return nil, err
		}
	}
	return nil, ctx.Err()
}

func ask(ctx context.Context, engine asker, requests ...txn.Request) error {
	bounded, cancel := context.WithTimeoutCause(ctx, lookLimit, errSlow)
	defer cancel()
	return engine.Query(bounded, requests...)
}

func everyLane() []int {
	lanes := make([]int, db.Lanes)
	for i := range lanes {
		lanes[i] = i
	}
	return lanes
}

// compare returns the topics of a relay beside those that are on record, and the generation in which its own were recorded, or 0.
func (c *RelayConfig) compare(relays []db.RelayTopics) (own *topics, recorded int64, err error) {
	own = &topics{own: c.Topics}
	for _, topic := range c.Topics {
		own.like = append(own.like, like(topic))
	}
	for _, other := range relays {
		own.generation = max(own.generation, other.Generation)
		switch {
		case c.Name == "":
			for _, topic := range other.Topics {
				own.others, own.foreign = append(own.others, topic), append(own.foreign, like(topic))
			}
		case c.Name == other.Relay:
			if slices.Equal(c.Topics, slices.Sorted(slices.Values(other.Topics))) {
				recorded = other.Generation
			}
		default:
			for _, topic := range c.Topics {
				if i := slices.IndexFunc(other.Topics, func(t string) bool { return overlap(t, topic) }); i >= 0 {
					return nil, 0, fmt.Errorf("%w: %q of the relay %q is among %q of the relay %q", ErrTopicTaken, topic, c.Name, other.Topics[i], other.Relay)
				}
			}
		}
	}
	return own, recorded, nil
}

// ForgetRelay takes its topics from a relay that does not run any more. From then on they are those of another one: of that
// without a Name, or of one that has them in its Topics. A row of idem.audit tells of it. It is ErrRelayRuns if a process runs the relay,
// and ErrNoRelay if none of that name has run.
func ForgetRelay(ctx context.Context, pool *pgxpool.Pool, name string) error {
	engine := &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	see := &db.SeeLanes{Relay: name, Lanes: everyLane()}
	if err := ask(ctx, engine, see); err != nil {
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
	if err := tx.Commit(ctx, &note); err != nil {
		return hint(err)
	}
	return nil
}
