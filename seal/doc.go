// Package seal encrypts what idem stores in the database. A response is sealed in the process that
// records it, and opened in the process that replays it. Postgres, its WAL, replicas, backups and
// logs only have the ciphertext.
//
//	idem.WithSealer(seal.New(seal.Keys{Primary: "2026-11", Secrets: map[string][]byte{"2026-11": secret}}))
//
// A secret is 32 random bytes. Its ID is not secret, and is stored beside every response. A sealed
// response is bound to its record. A response that was moved to another record, replaced, truncated
// or changed does not open, and Open returns [ErrTampered]. If the key is not among the Keys, Open
// returns [ErrUnknownKey]. For a response that was not sealed, it returns [ErrPlain], unless
// [AcceptPlain] is given.
//
// The cipher is XAES-256-GCM (https://c2sp.org/XAES-256-GCM), built from the standard library. Each
// response has its own AES-256-GCM key, derived from the secret and random bytes. One secret is
// good for 2^80 responses, while plain AES-GCM should stop at 2^32. The cipher also works under
// GODEBUG=fips140=only. Sealing adds 41 bytes.
//
// Not hidden are the scope, key, hash, execution ID, state, status and times of a record, and the
// length of its response. Responses are not compressed, so that a length reveals nothing about the
// content.
//
// docs/sealing.md describes how to introduce sealing and rotate keys while old and new processes
// run at the same time.
package seal
