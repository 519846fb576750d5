// Package ledger is the business of a torture: the tables that executions write to ([Install]), the effect itself
// ([Effect.Write]), and what is found in the database when all is over ([Take]).
package ledger
