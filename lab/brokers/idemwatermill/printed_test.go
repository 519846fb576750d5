package idemwatermill_test

import (
	"testing"

	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestExamplePrintsWhatItSays(t *testing.T) {
	examples.Run(t, map[string]func(){"": Example}, func(t *testing.T, _ string) {
		pool = pgtest.New(t)
		if _, err := pool.Exec(t.Context(), `CREATE TABLE invoices (customer text, body text)`); err != nil {
			t.Fatal(err)
		}
	})
}
