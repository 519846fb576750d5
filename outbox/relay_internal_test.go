package outbox

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestRelay_IsWokenByDoAndByWake(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	r := NewRelay(pool, PublisherFunc(nil), RelayConfig{})
	w := r.workers[0].waker
	defer w.listen()()
	do := func(key string, reject error) {
		t.Helper()
		_, err := idem.Do(t.Context(), pool, "s", key, idem.Hash{1}, func(tx pgx.Tx) (idem.Response, error) {
			if err := Add(t.Context(), tx, Message{Topic: "orders"}); err != nil {
				return idem.Response{}, err
			}
			return idem.Response{}, reject
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if do("rejected", idem.Reject(idem.Response{Status: 402})); len(w) != 0 {
		t.Error("a rolled back Add has woken the relay")
	}
	if do("committed", nil); len(w) != 1 {
		t.Error("the commit of Do has not woken the relay")
	}
	<-w
	if r.Wake(); len(w) != 1 {
		t.Error("Wake has not woken the relay")
	}
}
