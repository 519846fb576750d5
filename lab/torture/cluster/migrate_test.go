package cluster_test

import (
	"sync"
	"testing"

	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/lab/torture/cluster"
)

// A pooler in transaction mode may send every statement to another session, so neither prepared
// statements nor session locks last.
func TestSchemaIsMigratedThroughThePoolerByManyAtOnce(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{Bouncer: true})
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			if err := schema.UpAt(t.Context(), c.BouncerDSN()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	twice := query(t, c.DSN(), "select count(*) from (select 1 from idem_goose_version group by version_id having count(*) > 1) as twice")
	if twice != "0" {
		t.Errorf("%s migrations were applied twice", twice)
	}
}
