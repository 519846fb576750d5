package mutant

import "github.com/idem-go/idem/lab/torture/rule"

// sealMutants break how a response is sealed and how its record marks that.
func sealMutants() []Mutant {
	return []Mutant{
		{
			Name: "mark-stays", About: "a record that is taken over keeps the mark of a seal that its plain response does not have",
			Rules: []rule.Rule{rule.Readable, rule.Bytes},
			Edits: []Edit{
				{"internal/db.TakeOverSQL", "header = NULL, body = NULL, sealed_by = NULL\n", "header = NULL, body = NULL\n"},
				{"internal/db.CompleteSQL", "sealed_by = EXCLUDED.sealed_by\n", "sealed_by = coalesce(EXCLUDED.sealed_by, r.sealed_by)\n"},
			},
		},
		{
			Name: "mark-missing", About: "a sealed response is recorded as if it were plain",
			Rules: []rule.Rule{rule.Readable},
			Edits: []Edit{{"internal/db.Complete.Seal", "c.Header, c.Body, c.SealedBy = nil, sealed, keyID", "c.Header, c.Body = nil, sealed"}},
		},
		{
			Name: "sealed-is-replayed", About: "a replay answers what is in the database, without opening it",
			Rules: []rule.Rule{rule.Bytes},
			Edits: []Edit{{"idem.answerFrom", "r.Open(own, sealer)", "error(nil)"}},
		},
	}
}
