package doctor_test

import (
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/lab/personality"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestDoctor_RecognizesOtherServers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		*personality.Personality
		level doctor.Level
		says  string
	}{
		{personality.CockroachDB, doctor.Warning, "CockroachDB"},
		{personality.OldCockroachDB, doctor.Warning, "CockroachDB"},
		{personality.Yugabyte, doctor.Warning, "YugabyteDB"},
		{personality.AuroraDSQL, doctor.Problem, "no advisory locks"},
		{personality.Multigres, doctor.Note, "synchronous_commit"},
		{personality.PgDog, "", ""},
	} {
		t.Run(test.Name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			if test.Personality == personality.AuroraDSQL {
				testDBAt(t, dsn).exec("CREATE SCHEMA sys", "CREATE TABLE sys.jobs ()") // by which DSQL is recognized
			}
			w := testDBAt(t, pgtest.Personality(t, test.Personality, dsn, personality.Faults{}).DSN())
			if test.level == "" {
				w.findsNothing("server")
				return
			}
			w.finds("server", test.level, test.says, "portability")
		})
	}
}

// A server that rejects the first query gets a result instead of an error.
func TestDoctor_ReportsAServerThatRefusesTheFirstQuery(t *testing.T) {
	t.Parallel()
	p := &personality.Personality{Name: "bare", Functions: map[string]personality.Refusal{
		"pg_has_role": {Code: "42883", Message: "unknown function: pg_has_role()"},
	}}
	w := testDBAt(t, pgtest.Personality(t, p, pgtest.DSN(t), personality.Faults{}).DSN())
	w.finds("server", doctor.Problem, "nothing else was checked", "portability")
}
