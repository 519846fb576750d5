package fault

import (
	"strings"
	"testing"
)

func TestServerFaultEndsEverySessionAndKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for i, test := range []struct {
		name Name
		log  string
	}{
		{"server-restart", "database system was shut down at"},
		{"server-immediate", "database system was interrupted"},
		{"server-kill", "database system was interrupted"},
		{"backend-kill", "was terminated by signal 9"},
	} {
		mustExec(t, c, "insert into done values ('"+string(test.name)+"')")
		conn := connect(t, c.DSN())
		already := len(log(t, c))
		injectOne(t, Target{c, proxies(t, c, 1)}, test.name, 1)
		if query(t, conn, "select 1") == nil {
			t.Errorf("%s: a session outlived it", test.name)
		}
		if got := count(t, c, "select count(*) from done"); got != i+1 {
			t.Errorf("%s: %d rows, want %d", test.name, got, i+1)
		}
		if said := log(t, c)[already:]; !strings.Contains(said, test.log) {
			t.Errorf("%s: the log does not say %q:\n%s", test.name, test.log, said)
		}
	}
}
