package main

import (
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/lab/bench/contestant"
)

const ttl = 24 * time.Hour

func keyOf(call contestant.Call) store.Key {
	return store.NewKey(contestant.Scope, call.Key, contestant.HashOf(call), contestant.Operation, ttl)
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

func bareInsert(_ *store.Key, call contestant.Call) []txn.Request {
	return []txn.Request{contestant.BareInsert(call)}
}

func bareUpdate(_ *store.Key, call contestant.Call) []txn.Request {
	return []txn.Request{contestant.BareUpdate(call)}
}
