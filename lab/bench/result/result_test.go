package result_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/idem-go/idem/lab/bench/result"
)

func TestResults_AreReadAsWritten(t *testing.T) {
	t.Parallel()
	before := &result.Results{}
	before.Put(result.Run{Suite: "calls", Took: "old"})
	before.Put(result.Run{Suite: "messages", Scenarios: []result.Scenario{{Name: "empty", Base: "b"}}})
	before.Put(result.Run{Suite: "calls", Taken: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Servers: []string{"one"}, Scenarios: []result.Scenario{
		{Name: "s", Base: "b", Entries: []result.Entry{
			{Name: "b", Figures: result.Figures{"us": {1234}, "us/base": {1, 1, 1}}}, {Name: "failed", Error: "broken"},
		}},
	}})
	path := filepath.Join(t.TempDir(), "results.json")
	if err := before.Write(path); err != nil {
		t.Fatal(err)
	}
	after, err := result.Read(path)
	if diff := cmp.Diff(before, after, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("%v (-written +read):\n%s", err, diff)
	}
	if after.Run("calls").Took != "" || after.Scenario("s").Figure("b", "us")[0] != 1234 || after.Scenario("s").Figure("failed", "us") != nil {
		t.Errorf("%+v", after)
	}
}
