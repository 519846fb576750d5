package contestant

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/txn"
)

// BareWrites is a transaction of idem's engine with a bare INSERT of a record behind BEGIN, and a bare UPDATE of it before COMMIT. They check
// nothing: a key that is called again is an error. It is the least that a record costs which is begun and completed with the
// effect: for cells of first runs.
func BareWrites() Contestant {
	return Contestant{
		Name: NameBareWrites, Durable: 1, Tables: []string{"idem.records"},
		Guarantees: Guarantees{Atomic: "yes", Free: "yes", Replays: "no", Checks: "no"},
		Open: func(_ context.Context, place Place) (Runner, error) {
			return bareWrites{pooled{place.Pool}, txn.Engine{Pool: place.Pool, Limits: txn.DefaultLimits, Prepared: BareStatements}}, nil
		},
	}
}

type bareWrites struct {
	pooled
	engine txn.Engine
}

func (b bareWrites) Do(ctx context.Context, call Call) (Answer, error) {
	tx, err := b.engine.Open(ctx, BareInsert(call))
	if err != nil {
		return Answer{}, err
	}
	defer tx.Close()
	if _, err := tx.Run(Operation, func(tx pgx.Tx) (bool, error) { return false, call.Execute(ctx, tx) }); err != nil {
		return Answer{}, err
	}
	return Answer{Body: call.Body}, tx.Commit(ctx, BareUpdate(call))
}

// Operation is the execution id of all bare writes: nothing compares those of different keys.
const Operation = "00000000-0000-4000-8000-000000000000"

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

// BareStatements are what a connection prepares for bare writes, and for idem's own in their place.
var BareStatements = txn.WithOwn(append(db.Statements[:len(db.Statements):len(db.Statements)], insert, update))

// BareInsert begins a record.
func BareInsert(call Call) txn.Request {
	hash := HashOf(call)
	return bare{insert, [][]byte{[]byte(Scope), []byte(call.Key), hash[:], []byte(Operation)}}
}

// BareUpdate completes a record.
func BareUpdate(call Call) txn.Request {
	return bare{update, [][]byte{[]byte(Scope), []byte(call.Key), strconv.AppendInt(nil, 201, 10), call.Body}}
}

// bare is a statement without an answer.
type bare struct {
	statement *roundtrip.Statement
	values    [][]byte
}

func (b bare) Queue(trip *roundtrip.Trip) { trip.Add(b.statement, b.values...) }
func (bare) Read(trip *roundtrip.Trip)    { trip.Skip() }
