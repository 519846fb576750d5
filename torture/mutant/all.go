package mutant

import "slices"

// The files that several edits are of. Edits of queries are of what sqlc made of them, which is what is built.
const (
	queries   = "internal/db/records.sql.go"
	migration = "migrations/00001_records.sql"
)

// All are the mutants.
func All() []Mutant {
	return slices.Concat(claimMutants(), commitMutants(), fnMutants(), memoryMutants(), serverMutants())
}
