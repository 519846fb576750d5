// Package store has the records as typed verbs: Claim, TakeOver, Load, Complete and the like. Each is a statement that
// travels with others in one round trip: it is queued on a trip, and reads its answer from the same trip.
//
// It alone imports internal/db, which has a struct for each query of queries/. A verb is here if the library means more by it than
// the query says: a Key in the place of its parts, a Step in the place of its columns. The others are the generated ones.
package store
