package mutant

import "github.com/idem-go/idem/lab/torture/rule"

// purgeMutants break what a purge deletes.
func purgeMutants() []Mutant {
	return []Mutant{
		{
			Name: "purge-unchecked", About: "a purge waits for a record that it has seen to be expired, and does not check it again before it deletes it",
			Rules: []rule.Rule{rule.Retained},
			Edits: []Edit{{"purge.deletion", `WHERE r.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
            SELECT r.ctid FROM`, `WHERE (r.scope, r.key) IN (
            SELECT r.scope, r.key FROM`}, {"purge.deletion", `              AND (%[2]s)
            FOR UPDATE SKIP LOCKED))
      AND (%[2]s)
`, "              AND (%[2]s))\n"}},
		},
		{
			Name: "purge-without-grace", About: "a purge deletes a record as soon as it has expired",
			Rules: []rule.Rule{rule.Grace},
			Edits: []Edit{{"purge.records", "o.Grace", "0"}},
		},
		{
			Name: "purge-processing", About: "a purge deletes records in state processing",
			Rules: []rule.Rule{rule.PurgedProcessing},
			Edits: []Edit{{"purge.records", "'{completed,failed}'", "'{completed,failed,processing}'"}},
		},
	}
}
