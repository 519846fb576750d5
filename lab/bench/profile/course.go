package main

import (
	"context"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/lab/bench/contestant"
)

// course is a way to do a write or to answer a replay: a contestant, or some of what idem.Do consists of.
type course struct {
	name string
	open func(ctx context.Context, pool *pgxpool.Pool) (func(context.Context, contestant.Call) error, error)
}

// The names of the courses that the report compares.
const (
	inEngine  = "the same in idem's engine"
	twoWrites = "+ one bare INSERT and one bare UPDATE of a record"
	statement = "one statement of idem's"
)

// writes are the ways to a first run. From the second to the last but two, each is the one before with something more, or in
// place of something simpler: the last of them says to the server all that idem.Do says.
var writes = []course{
	of(contestant.Plain()),
	inPieces(inEngine, nil, nil),
	inPieces("+ one bare INSERT of a record", bareInsert, nil),
	{twoWrites, of(contestant.BareWrites()).open},
	inPieces("idem's claim in place of that INSERT", claim, bareUpdate),
	inPieces("+ the load behind it, for replays", claimAndLoad, bareUpdate),
	inPieces("idem's completion in place of that UPDATE", claimAndLoad, complete),
	of(contestant.Idem()),
	of(contestant.Textbook()),
}

// replays are the ways to the answer of a key that has one.
var replays = []course{
	of(contestant.Lookup()),
	{statement, openStatement},
	of(contestant.Hinted()[0]),
	of(contestant.Idem()),
	of(contestant.Textbook()),
}

func of(c contestant.Contestant) course {
	return course{c.Name, func(ctx context.Context, pool *pgxpool.Pool) (func(context.Context, contestant.Call) error, error) {
		runner, err := c.Open(ctx, contestant.Place{Pool: pool})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, call contestant.Call) error {
			_, err := runner.Do(ctx, call)
			return err
		}, nil
	}}
}

// inPieces is a transaction of idem's engine with these requests behind BEGIN and before COMMIT.
func inPieces(name string, behindBegin, beforeCommit func(*db.Key, contestant.Call) []txn.Request) course {
	return course{name, func(_ context.Context, pool *pgxpool.Pool) (func(context.Context, contestant.Call) error, error) {
		engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits, Prepared: contestant.BareStatements}
		return func(ctx context.Context, call contestant.Call) error {
			key := keyOf(call)
			tx, err := engine.Open(ctx, queued(behindBegin, &key, call)...)
			if err != nil {
				return err
			}
			defer tx.Close()
			_, err = tx.Run(contestant.Operation, func(tx pgx.Tx) (bool, error) { return false, call.Execute(ctx, tx) })
			if err != nil {
				return err
			}
			return tx.Commit(ctx, queued(beforeCommit, &key, call)...)
		}, nil
	}}
}

func queued(requests func(*db.Key, contestant.Call) []txn.Request, key *db.Key, call contestant.Call) []txn.Request {
	if requests == nil {
		return nil
	}
	return requests(key, call)
}

// openStatement answers a replay by the load alone, and makes the record by a call of idem.Do.
func openStatement(ctx context.Context, pool *pgxpool.Pool) (func(context.Context, contestant.Call) error, error) {
	first, err := of(contestant.Idem()).open(ctx, pool)
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits, Prepared: txn.WithOwn(db.Statements)}
	return func(ctx context.Context, call contestant.Call) error {
		key := keyOf(call)
		load := db.Load{Key: &key}
		if err := engine.Query(ctx, &load); err != nil || load.Found {
			return err
		}
		return first(ctx, call)
	}, err
}

// named returns those that a pattern matches.
func named(all []course, only *regexp.Regexp) (some []course) {
	for _, c := range all {
		if only.MatchString(c.name) {
			some = append(some, c)
		}
	}
	return some
}
