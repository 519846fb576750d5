package outbox

import (
	"testing"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// A message that is committed late has to be found before the next one of its key, which may be beyond all that was read.
func TestEveryLookBeginsWhereAMessageMayBeYetToCome(t *testing.T) {
	t.Parallel()
	r, now := reach{}, time.Now()
	look := func(want, last int64, more bool, writers ...string) {
		t.Helper()
		from := r.next(now)
		if from != want {
			t.Errorf("the look begins beyond %d, want %d", from, want)
		}
		r.read(from, last, more, &store.SeeWriters{Writers: writers, Prepared: len(writers) > 0 && writers[0] == "prepared"}, time.Millisecond, now)
	}
	look(0, 100, false, "3/1") // whatever it writes has a place of its own, up to 100 perhaps
	look(0, 200, false, "3/1", "4/1")
	look(0, 300, false, "4/1") // of the first nothing is to come, nor of others up to where it was met first
	look(0, 400, true, "5/1")  // nor up to 200
	look(200, 250, true)       // nor up to 300, but not all that is there was read
	look(200, 600, false)
	look(300, 700, false, "6/1")
	look(400, 0, false, "prepared") // that may be the same one
	look(400, 0, false)
	look(600, 0, false)
	r.back(450)
	look(449, 0, false)
	look(449, 0, false)
}
