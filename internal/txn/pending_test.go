package txn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Tests that look for leaked goroutines must not find the watcher.
func TestPendingCommits_WatchEndsWithLastCommit(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "host=127.0.0.1 port=1") // never dialed
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	synctest.Test(t, func(*testing.T) {
		begin, watching := time.Now(), make(chan struct{})
		u := &pendingCommits{over: make(chan struct{}), closed: make(chan struct{}), count: 1}
		pendingMu.Lock()
		pendingOf[pool] = u
		pendingMu.Unlock()
		go func() {
			defer close(watching)
			u.watch(pool)
		}()
		synctest.Wait()
		u.leave(pool)
		<-watching
		if lasted := time.Since(begin); lasted > 0 {
			t.Errorf("the pool was watched for another %v", lasted)
		}
	})
}
