package txn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A program that looks for goroutines at the end of a test or of a process finds none of ours.
func TestNobodyWatchesAPoolForLongerThanACommitGoesOn(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "host=127.0.0.1 port=1") // is asked for nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	synctest.Test(t, func(*testing.T) {
		begin, watching := time.Now(), make(chan struct{})
		u := &unanswered{over: make(chan struct{}), closed: make(chan struct{}), count: 1}
		unansweredMu.Lock()
		unansweredOf[pool] = u
		unansweredMu.Unlock()
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
