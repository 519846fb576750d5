// Package seal encrypts what idem keeps in the database: a response is sealed in the process that recorded it, and opened in
// the one that replays it. Postgres, its WAL, its replicas, its backups and its logs only ever have ciphertext.
//
//	idem.WithSealer(seal.New(seal.Keys{Primary: "2026-11", Secrets: map[string][]byte{"2026-11": secret}}))
//
// A secret is 32 random bytes, and its id a name that is not secret: it is stored beside every response. What is sealed is
// bound to its record, so that a response which was moved to another record, exchanged, cut short or altered does
// not open, and is [ErrTampered]. A key that is not among the Keys is [ErrUnknownKey], and a response that was not sealed is
// [ErrPlain], unless [AcceptPlain] is given.
//
// The cipher is XAES-256-GCM (https://c2sp.org/XAES-256-GCM) from the parts of the standard library: each response has an
// AES-256-GCM key of its own, which is derived from the secret and random bytes. That is good for 2^80 responses by one key,
// where AES-GCM alone should end at 2^32. It is at work under GODEBUG=fips140=only as well. What is sealed is 41 bytes longer than it was.
//
// Not hidden are scope, key, hash, execution id, state, status and times of a record, and how long its response is. Nothing
// is compressed, so that a length tells nothing about contents.
//
// docs/sealing.md has the steps by which sealing is rolled out, and keys are rotated, while old and new processes run at once.
package seal
