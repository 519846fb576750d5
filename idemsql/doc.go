// Package idemsql is package idem for programs that use database/sql, and what is built on it: sqlc, sqlx, GORM, bun, ent.
//
//	db := idemsql.OpenDB(pool)
//	result, err := idemsql.Do(ctx, db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
//		…
//	})
//
// Do, DoJSON and DoTx promise what those of package idem promise, which make the claim, the commit and the replay. Each needs a
// *sql.DB whose driver is pgx's stdlib, and answers ErrDriver for any other, before anything is done.
//
// With a *sql.DB of OpenDB the claim travels with BEGIN and the response with COMMIT, so a first run takes as many round trips as the plain
// transaction of fn. With any other *sql.DB a first run takes two round trips more, and a replay one.
package idemsql
