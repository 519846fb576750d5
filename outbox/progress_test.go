package outbox

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/db"
)

type transaction struct {
	name   string
	locked bool
	ready  bool // has been prepared
	places []int64
	after  []int64 // the positions that were committed when it began
}

// traffic simulates transactions that lock the table, draw positions, roll back to savepoints,
// prepare, commit and roll back in any order.
type traffic struct {
	random         *rand.Rand
	open           []*transaction
	committed, all []int64 // the rows in the table, and all committed rows
	after          map[int64][]int64
	place          int64
	names          int
	now            time.Time
}

func newTraffic(seed uint64) *traffic {
	return &traffic{random: rand.New(rand.NewPCG(seed, 1)), after: map[int64][]int64{}, now: time.Unix(0, 0)}
}

func (t *traffic) name() string { t.names++; return fmt.Sprint(t.names) }

// step is a step of a transaction, or a read of the relay.
func (t *traffic) step(look func(between func())) {
	switch n := t.random.IntN(20); {
	case n < 4:
		t.open = append(t.open, &transaction{name: t.name(), after: slices.Clone(t.all)})
	case n < 12 && len(t.open) > 0:
		tx := t.open[t.random.IntN(len(t.open))]
		if tx.ready {
			break
		}
		tx.locked = true
		if t.random.IntN(4) > 0 { // otherwise it has the lock, but no position yet
			t.place++
			tx.places = append(tx.places, t.place)
		}
	case n < 13 && len(t.open) > 0:
		tx := t.open[t.random.IntN(len(t.open))]
		if !tx.ready { // ROLLBACK TO SAVEPOINT, to its begin
			tx.places, tx.locked = nil, false
		}
	case n < 14 && len(t.open) > 0:
		if tx := t.open[t.random.IntN(len(t.open))]; !tx.ready {
			tx.ready = true
			if t.random.IntN(2) == 0 {
				tx.name = t.name()
			}
		}
	case n < 17 && len(t.open) > 0:
		i := t.random.IntN(len(t.open))
		if t.random.IntN(4) > 0 {
			t.committed, t.all = append(t.committed, t.open[i].places...), append(t.all, t.open[i].places...)
			for _, seq := range t.open[i].places {
				t.after[seq] = t.open[i].after
			}
		}
		t.open = slices.Delete(t.open, i, i+1)
	default:
		look(func() {
			if t.random.IntN(2) == 0 {
				t.step(func(func()) {})
			}
		})
	}
}

// list answers a list of writers.
func (t *traffic) list(list *db.ListWriters) {
	for _, tx := range t.open {
		if list != nil && tx.locked {
			list.Rows = append(list.Rows, db.Writer{Name: tx.name, Prepared: tx.ready})
		}
	}
}

// read answers a read.
func (t *traffic) read(request *db.ReadMessages) {
	request.Room, request.Octets = 1+t.random.IntN(8), 1
	for _, seq := range slices.Sorted(slices.Values(t.committed)) {
		in := seq > request.After
		for i := range request.Lows {
			in = in || request.Lows[i] <= seq && seq <= request.Highs[i]
		}
		if in && len(request.Seqs) < request.Room {
			request.Seqs = append(request.Seqs, seq)
		}
	}
}

func (t *traffic) remove(gone []int64) {
	t.committed = slices.DeleteFunc(t.committed, func(seq int64) bool { return slices.Contains(gone, seq) })
}

// check fails the test if a row was not read once, or was read too early.
func (t *traffic) check(test *testing.T, seed uint64, read []int64) {
	test.Helper()
	if len(t.committed) > 0 || len(read) != len(t.all) {
		test.Fatalf("seed %d: %d of %d were read, %v are left", seed, len(read), len(t.all), t.committed)
	}
	met := map[int64]bool{}
	for _, seq := range read {
		for _, before := range t.after[seq] {
			if !met[before] {
				test.Fatalf("seed %d: %d was read before %d, which was committed before it was begun", seed, seq, before)
			}
		}
		if met[seq] {
			test.Fatalf("seed %d: %d was read twice", seed, seq)
		}
		met[seq] = true
	}
}

// A stream is read in parts. Each committed row is read once, and before the rows of transactions
// that began after its commit.
func TestProgress_ReadsCommittedRowsOnceAndInOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(80) {
		var r progress
		var read []int64
		traffic := newTraffic(seed)
		look := func(between func()) {
			traffic.now = traffic.now.Add(time.Duration(traffic.random.IntN(100)) * time.Millisecond)
			list, request := r.next(traffic.now)
			traffic.list(list)
			between()
			traffic.read(request)
			r.note(list, request, time.Second, traffic.now)
			done := request.Seqs
			if traffic.random.IntN(5) == 0 && len(done) > 0 { // another relay takes over
				done, r = done[:traffic.random.IntN(len(done))], progress{}
			}
			read = append(read, done...)
			traffic.remove(done)
		}
		for range 400 {
			traffic.step(look)
		}
		for range 200 {
			look(func() {})
		}
		traffic.check(t, seed, read)
		if len(traffic.open) == 0 && len(r.gaps) > 0 {
			t.Errorf("seed %d: no transaction can have a place in %+v", seed, r.gaps)
		}
	}
}

// Many transactions are rolled back while one stays open.
func TestProgress_BoundsGaps(t *testing.T) {
	t.Parallel()
	var r progress
	for i := range int64(3000) {
		_, request := r.next(time.Unix(0, 0))
		request.Room, request.Octets, request.Seqs = 10, 1, []int64{2*i + 2}
		r.note(&db.ListWriters{Rows: []db.Writer{{Name: "it"}}}, request, 0, time.Unix(0, 0))
	}
	if len(r.gaps) > maxGaps || r.gaps[0].low != 1 || r.gaps[len(r.gaps)-1].high != 5999 {
		t.Errorf("%d gaps, from %+v to %+v", len(r.gaps), r.gaps[0], r.gaps[len(r.gaps)-1])
	}
}
