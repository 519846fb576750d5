package main

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/lab/bench/contestant"
)

const ttl = 24 * time.Hour

func keyOf(call contestant.Call) db.Key {
	return db.NewKey(contestant.Scope, call.Key, contestant.HashOf(call), contestant.Operation, ttl)
}

func claim(key *db.Key, _ contestant.Call) []txn.Request {
	return []txn.Request{&db.Claim{Key: key}}
}

func claimAndLoad(key *db.Key, _ contestant.Call) []txn.Request {
	return []txn.Request{&db.Claim{Key: key}, &db.Load{Key: key}}
}

func complete(key *db.Key, call contestant.Call) []txn.Request {
	return []txn.Request{&db.Complete{Key: key, State: db.Completed, Status: 201, Body: call.Body}}
}

func bareInsert(_ *db.Key, call contestant.Call) []txn.Request {
	return []txn.Request{contestant.BareInsert(call)}
}

func bareUpdate(_ *db.Key, call contestant.Call) []txn.Request {
	return []txn.Request{contestant.BareUpdate(call)}
}
