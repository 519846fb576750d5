package fleet_test

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/example/fleet"
)

var keys = flag.Int("keys", 2000, "how many keys the tenant has that moves in TestEachKeyOfATenantMoves")

// fill gives the tenant keys with their orders and messages, a tenth of them of operations. Another tenant has as many.
const fill = `
WITH made AS (SELECT gen_random_uuid() AS id, n, t FROM generate_series(1, %[1]d) n, (VALUES ('acme'), ('other')) o (t)),
r AS (INSERT INTO idem.records (scope, key, hash, operation_id, created_at, expires_at, state, status, completed_at, header, body)
	SELECT t || '/POST %%2Forders', 'key-' || n, sha256(n::text::bytea), id, now(), now() + interval '1 day', 'completed', 201, now(), '{"Content-Type":["text/plain"]}', repeat('b', 200)::bytea FROM made),
o AS (INSERT INTO orders (tenant, id, customer, number, request, cents) SELECT t, id, 'filled', n, 'filled-' || n, 1 FROM made),
i AS (INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at)
	SELECT t || '/billing', 'orders', id::text, sha256(n::text::bytea), 'handled', now(), now() + interval '7 days' FROM made),
p AS (INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, state, undoing, step, seq, since, wake_at, tries, attempts, ended_at)
	SELECT id, t || '/POST %%2Forders', 'key-' || n, sha256(n::text::bytea), 'filled', 86400000000, now(), 1, 'completed', false, '', 2, now(), now(), 0, 0, now() FROM made WHERE n %% 10 = 0)
INSERT INTO idem.steps (operation_id, seq, kind, name, recorded_at, outcome, value) SELECT id, s, 'call', 'charge', now(), 'done', '"x"' FROM made, generate_series(1, 2) s WHERE n %% 10 = 0`

func TestEachKeyOfATenantMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open()
	w.fill(w.west, *keys)
	l := w.load(4)
	l.atLeast(20)
	l.mu.Lock()
	l.waits = nil
	l.mu.Unlock()
	report := w.move(w.west, w.east, fleet.MoveConfig{Progress: func(s fleet.Stage, rows int64) { t.Logf("%v: %s, %d rows", time.Now().Format("04:05.000"), s, rows) }})
	l.atLeast(20)
	l.stop()
	l.clients.Wait()
	const filled = "select count(*) from idem.records join orders on orders.id = operation_id join idem.inbox i on i.id = orders.id::text where idem.records.key like 'key-%' and tenant = 'acme'"
	if n := number(t, w.east.Pool, filled); n != *keys {
		t.Errorf("%d keys have arrived with their orders, of %d", n, *keys)
	}
	if n := number(t, w.east.Pool, "select count(*) from idem.steps s join idem.operations o on o.id = operation_id where o.name = 'filled'"); n != *keys/10*2 {
		t.Errorf("%d steps have arrived, of %d", n, *keys/10*2)
	}
	if n := number(t, w.west.Pool, "select count(*) from idem.records where scope like 'other/%'"); n != *keys {
		t.Errorf("the other tenant has %d keys left, of %d", n, *keys)
	}
	slices.Sort(l.waits)
	t.Logf("%+v; of %d calls meanwhile, 50%% took %v, 99%% %v, the longest %v", report, len(l.waits),
		l.waits[len(l.waits)/2], l.waits[len(l.waits)*99/100], l.waits[len(l.waits)-1])
}
