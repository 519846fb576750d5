// Package store has the records as typed verbs: Claim, TakeOver, Load, Complete and the like. Each is a statement that
// travels with others in one round trip: it is queued on a trip, and reads its answer from the same trip.
//
// It alone imports internal/db. The parameters of a verb are in the order of sqlc's struct for it, which a test compares.
package store
