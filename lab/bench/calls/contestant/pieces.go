package contestant

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/txn"
)

// FirstRuns returns the variants of a first run that the profile compares. Each variant between
// Plain and Idem adds one thing to the previous variant, or replaces a bare statement by a
// statement of idem. The last variant before Idem sends the same statements as idem.Do.
func FirstRuns() []Contestant {
	return []Contestant{
		Plain(),
		piece("the same in idem's engine", nil, nil),
		piece("+ one bare INSERT of a record", bareInsert, nil),
		piece("+ one bare INSERT and one bare UPDATE of a record", bareInsert, bareUpdate),
		piece("idem's claim in place of that INSERT", claim, bareUpdate),
		piece("+ the load behind it, for replays", claimAndLoad, bareUpdate),
		piece("idem's completion in place of that UPDATE", claimAndLoad, complete),
		Idem(),
		Textbook(),
	}
}

// Replays returns the variants of a replay that the profile compares.
func Replays() []Contestant {
	return []Contestant{Lookup(), Load(), IdemHinted(), Idem(), Textbook()}
}

// BareWrites is a transaction of idem's engine with a bare INSERT of a record after BEGIN and a
// bare UPDATE of the record before COMMIT. The statements check nothing, and a second call with the
// same key fails. BareWrites is the minimum cost of a record that is inserted and completed
// together with the effect.
func BareWrites() Contestant { return piece(NameBareWrites, bareInsert, bareUpdate) }

// requests returns the statements that a piece adds to a call.
type requests func(*db.Key, Call) []txn.Request

// piece is a transaction of idem's engine with requests after BEGIN and before COMMIT.
func piece(name string, afterBegin, beforeCommit requests) Contestant {
	return Contestant{Name: name, Tables: []string{"idem.records"}, Open: func(_ context.Context, place Place) (Runner, error) {
		engine := txn.Engine{Pool: place.Pool, Limits: txn.DefaultLimits, Prepared: bareStatements}
		return pieces{pooled{place.Pool}, engine, afterBegin, beforeCommit}, nil
	}}
}

type pieces struct {
	pooled
	engine                   txn.Engine
	afterBegin, beforeCommit requests
}

func (p pieces) Do(ctx context.Context, call Call) (Answer, error) {
	key := keyOf(call)
	tx, err := p.engine.Open(ctx, p.afterBegin.of(&key, call)...)
	if err != nil {
		return Answer{}, err
	}
	defer tx.Close()
	if _, err := tx.Run(execution, func(tx pgx.Tx) (bool, error) { return false, call.Execute(ctx, tx) }); err != nil {
		return Answer{}, err
	}
	return Answer{Body: call.Body}, tx.Commit(ctx, p.beforeCommit.of(&key, call)...)
}

func (r requests) of(key *db.Key, call Call) []txn.Request {
	if r == nil {
		return nil
	}
	return r(key, call)
}

// Load answers a replay with idem's load statement alone. idem.Do makes the record.
func Load() Contestant {
	idem := Idem()
	return Contestant{Name: "one statement of idem's", Tables: idem.Tables, Open: func(ctx context.Context, place Place) (Runner, error) {
		first, err := idem.Open(ctx, place)
		return load{first, txn.Engine{Pool: place.Pool, Limits: txn.DefaultLimits, Prepared: txn.WithOwn(db.Statements)}}, err
	}}
}

type load struct {
	Runner
	engine txn.Engine
}

func (l load) Do(ctx context.Context, call Call) (Answer, error) {
	key := keyOf(call)
	load := db.Load{Key: &key}
	if err := l.engine.Query(ctx, &load); err != nil || load.Found {
		return Answer{Replayed: true}, err
	}
	return l.Runner.Do(ctx, call)
}

// execution is the execution id of all pieces. They can share it, because no statement compares the
// ids of different keys.
const execution = "00000000-0000-4000-8000-000000000000"

func keyOf(call Call) db.Key {
	return db.NewKey(Scope, call.Key, HashOf(call), execution, 24*time.Hour)
}

func claim(key *db.Key, _ Call) []txn.Request { return []txn.Request{&db.Claim{Key: key}} }

func claimAndLoad(key *db.Key, _ Call) []txn.Request {
	return []txn.Request{&db.Claim{Key: key}, &db.Load{Key: key}}
}

func complete(key *db.Key, call Call) []txn.Request {
	return []txn.Request{&db.Complete{Key: key, State: db.Completed, Status: 201, Body: call.Body}}
}

var (
	insert = roundtrip.New(roundtrip.Statement{
		Name: "bench_insert",
		SQL: `insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
			values ($1, $2, $3, $4, now(), now() + interval '24 hours', 'processing')`,
		Params: []roundtrip.Param{roundtrip.TextParam, roundtrip.TextParam, roundtrip.BytesParam, roundtrip.PlainParam},
	})
	update = roundtrip.New(roundtrip.Statement{
		Name: "bench_update",
		SQL: `update idem.records set state = 'completed', status = $3, completed_at = now(), body = $4
			where scope = $1 and key = $2`,
		Params: []roundtrip.Param{roundtrip.TextParam, roundtrip.TextParam, roundtrip.PlainParam, roundtrip.BytesParam},
	})
)

// bareStatements are the statements that each connection prepares: those of idem and the bare ones.
var bareStatements = txn.WithOwn(append(db.Statements[:len(db.Statements):len(db.Statements)], insert, update))

func bareInsert(_ *db.Key, call Call) []txn.Request {
	hash := HashOf(call)
	return []txn.Request{bare{insert, [][]byte{[]byte(Scope), []byte(call.Key), hash[:], []byte(execution)}}}
}

func bareUpdate(_ *db.Key, call Call) []txn.Request {
	return []txn.Request{bare{update, [][]byte{[]byte(Scope), []byte(call.Key), strconv.AppendInt(nil, 201, 10), call.Body}}}
}

// bare is a statement without a result.
type bare struct {
	statement *roundtrip.Statement
	values    [][]byte
}

func (b bare) Queue(trip *roundtrip.Trip) { trip.Add(b.statement, b.values...) }
func (bare) Read(trip *roundtrip.Trip)    { trip.Skip() }
