package idem

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
)

func TestRetryAfterIsAsLongAsTheWaitWithinBounds(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]time.Duration{
		0: time.Second, time.Second / 2: time.Second, 5 * time.Second: 5 * time.Second, time.Hour: 30 * time.Second,
	} {
		w := &waiting{wait: wait}
		if got := w.inProgress().(*InProgressError).RetryAfter; got != want {
			t.Errorf("after a wait of %v: %v, want %v", wait, got, want)
		}
	}
}

// asker counts how often it is told that a connection was had.
type asker int

func (a *asker) MarkAsked() { *a++ }

// A follower that may not wait counts on this: a leader that has only looked for the record may yet wait for the pool.
func TestOnlyTheConnectionOfAClaimCountsAsHad(t *testing.T) {
	t.Parallel()
	c, err := newCall("tenant", "k", HashBytes(nil), func(pgx.Tx) (Response, error) { return Response{}, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.begin(pgtest.New(t))
	var told asker
	c.execution.engine.Asker = &told
	if _, err := c.execution.ask(t.Context()); err != nil || told != 0 {
		t.Errorf("told %d times of a look, %v", told, err)
	}
	_, err = c.execution.claim(t.Context())
	if err != nil || told != 1 {
		t.Fatalf("told %d times of a claim, %v", told, err)
	}
	c.execution.tx.Close()
}
