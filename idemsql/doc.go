// Package idemsql is package idem for programs that use database/sql, or a library that is built on
// it: sqlc, sqlx, GORM, bun, ent.
//
//	db := idemsql.OpenDB(pool)
//	result, err := idemsql.Do(ctx, db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
//		…
//	})
//
// [Do], [DoJSON] and [DoTx] call the functions of the same name in package idem and give the same
// guarantees. They need a *sql.DB or *sql.Tx whose driver is pgx's stdlib. With any other driver
// they return [ErrDriver] before they do anything.
//
// With a *sql.DB from [OpenDB] the claim is sent together with BEGIN, and the response together
// with COMMIT. A first run then takes as many round trips as a plain transaction around the
// statements of fn. With any other *sql.DB a first run takes two more round trips, and a replay
// takes one more round trip.
package idemsql
