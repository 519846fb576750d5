// Package seal encrypts what idem stores in the database. The process that records a response
// encrypts it (seals it), and a process that replays the response decrypts it (opens it). Postgres,
// its WAL, replicas, backups and logs only have the ciphertext.
//
//	idem.WithSealer(seal.New(seal.Keys{Primary: "2026-11", Secrets: map[string][]byte{"2026-11": secret}}))
//
// A secret is 32 random bytes. The ID of a secret is not secret, and is stored with every response.
// A sealed response is bound to its record. If a response was moved to another record, replaced,
// truncated or changed, Open returns [ErrTampered]. If the key is not among the Keys, Open returns
// [ErrUnknownKey]. For a response that was not sealed, it returns [ErrPlain], unless [AcceptPlain]
// is given.
//
// The cipher is XAES-256-GCM (https://c2sp.org/XAES-256-GCM), built from the standard library. Each
// response has its own AES-256-GCM key, derived from the secret and random bytes. One secret can
// seal 2^80 responses, while a key of plain AES-GCM should seal at most 2^32. The cipher also works
// under GODEBUG=fips140=only. Sealing adds 41 bytes.
//
// Sealing does not hide the scope, key, hash, execution ID, state, status and times of a record,
// nor the length of its response. Responses are not compressed, so that the length reveals nothing
// about the content.
//
// docs/sealing.md describes how to introduce sealing and rotate keys while old and new processes
// run at the same time.
package seal
