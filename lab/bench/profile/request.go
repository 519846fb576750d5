package main

import (
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/lab/bench/contestant"
)

const ttl = 24 * time.Hour

func keyOf(call contestant.Call) store.Key {
	return store.NewKey(contestant.Scope, call.Key, contestant.HashOf(call), operation, ttl)
}

func claim(key *store.Key, _ contestant.Call) []txn.Request {
	return []txn.Request{&store.Claim{Key: key}}
}

func claimAndLoad(key *store.Key, _ contestant.Call) []txn.Request {
	return []txn.Request{&store.Claim{Key: key}, &store.Load{Key: key}}
}

func complete(key *store.Key, call contestant.Call) []txn.Request {
	return []txn.Request{&store.Complete{Key: key, State: store.Completed, Status: 201, Body: call.Body}}
}

// insert and update write what a record has, and check nothing: they are the least that it takes to have one that is begun
// and completed.
var (
	insert = roundtrip.New(roundtrip.Statement{
		Name: "profile_insert",
		SQL: `insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
			values ($1, $2, $3, $4, now(), now() + interval '24 hours', 'processing')`,
		Params: []roundtrip.Param{roundtrip.TextParam, roundtrip.TextParam, roundtrip.BytesParam, roundtrip.PlainParam},
	})
	update = roundtrip.New(roundtrip.Statement{
		Name: "profile_update",
		SQL: `update idem.records set state = 'completed', status = $3, completed_at = now(), body = $4
			where scope = $1 and key = $2`,
		Params: []roundtrip.Param{roundtrip.TextParam, roundtrip.TextParam, roundtrip.PlainParam, roundtrip.BytesParam},
	})
)

func bareInsert(_ *store.Key, call contestant.Call) []txn.Request {
	hash := contestant.HashOf(call)
	return []txn.Request{bare{insert, [][]byte{[]byte(contestant.Scope), []byte(call.Key), hash[:], []byte(operation)}}}
}

func bareUpdate(_ *store.Key, call contestant.Call) []txn.Request {
	return []txn.Request{bare{update, [][]byte{[]byte(contestant.Scope), []byte(call.Key), strconv.AppendInt(nil, 201, 10), call.Body}}}
}

// bare is a statement without an answer.
type bare struct {
	statement *roundtrip.Statement
	values    [][]byte
}

func (b bare) Queue(trip *roundtrip.Trip) { trip.Add(b.statement, b.values...) }
func (bare) Read(trip *roundtrip.Trip)    { trip.Skip() }
