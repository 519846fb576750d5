package outbox

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// Transactions lock the table, take places, roll back to savepoints, prepare, commit and roll back in any order, while a stream is
// read in portions. Whatever is committed is read once, and before what was begun after its commit.
func TestEverythingThatIsCommittedIsReadOnceAndInOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(80) {
		random := rand.New(rand.NewPCG(seed, 1))
		type transaction struct {
			name   string
			locked bool
			ready  bool // prepared
			places []int64
			after  []int64 // the places that were committed when it began
		}
		var (
			r               reach
			open            []*transaction
			committed, read []int64
			after           = map[int64][]int64{}
			place           int64
			names           int
			now             = time.Unix(0, 0)
		)
		name := func() string { names++; return fmt.Sprint(names) }
		look := func(between func()) {
			now = now.Add(time.Duration(random.IntN(100)) * time.Millisecond)
			list, request := r.next(now)
			if list != nil {
				for _, tx := range open {
					if tx.locked {
						list.Writers = append(list.Writers, store.Writer{Name: tx.name, Prepared: tx.ready})
					}
				}
			}
			between()
			request.Room, request.Octets = 1+random.IntN(8), 1
			for _, seq := range slices.Sorted(slices.Values(committed)) {
				in := seq > request.After
				for i := range request.Lows {
					in = in || request.Lows[i] <= seq && seq <= request.Highs[i]
				}
				if in && len(request.Seqs) < request.Room {
					request.Seqs = append(request.Seqs, seq)
				}
			}
			r.note(list, request, time.Second, now)
			done := request.Seqs
			if random.IntN(5) == 0 && len(done) > 0 { // the broker goes away in the middle
				done = done[:random.IntN(len(done))]
				r.back(request.Seqs[len(done)])
			}
			read = append(read, done...)
			committed = slices.DeleteFunc(committed, func(seq int64) bool { return slices.Contains(done, seq) })
		}
		var all []int64
		var step func()
		step = func() {
			switch n := random.IntN(20); {
			case n < 4:
				open = append(open, &transaction{name: name(), after: slices.Clone(all)})
			case n < 12 && len(open) > 0:
				tx := open[random.IntN(len(open))]
				if tx.ready {
					break
				}
				tx.locked = true
				if random.IntN(4) > 0 { // else it has the lock, and no place yet
					place++
					tx.places = append(tx.places, place)
				}
			case n < 13 && len(open) > 0:
				tx := open[random.IntN(len(open))]
				if !tx.ready { // ROLLBACK TO a savepoint of its beginning
					tx.places, tx.locked = nil, false
				}
			case n < 14 && len(open) > 0:
				if tx := open[random.IntN(len(open))]; !tx.ready {
					tx.name, tx.ready = name(), true
				}
			case n < 17 && len(open) > 0:
				i := random.IntN(len(open))
				if random.IntN(4) > 0 {
					committed, all = append(committed, open[i].places...), append(all, open[i].places...)
					for _, seq := range open[i].places {
						after[seq] = open[i].after
					}
				}
				open = slices.Delete(open, i, i+1)
			default:
				look(func() {
					if random.IntN(2) == 0 {
						step()
					}
				})
			}
		}
		for range 400 {
			step()
		}
		for range 200 {
			look(func() {})
		}
		if len(committed) > 0 || len(read) != len(all) {
			t.Fatalf("seed %d: %d of %d were read, %v are left; %+v", seed, len(read), len(all), committed, r)
		}
		met := map[int64]bool{}
		for _, seq := range read {
			for _, before := range after[seq] {
				if !met[before] {
					t.Fatalf("seed %d: %d was read before %d, which was committed before it was begun", seed, seq, before)
				}
			}
			if met[seq] {
				t.Fatalf("seed %d: %d was read twice", seed, seq)
			}
			met[seq] = true
		}
		if len(open) == 0 && len(r.gaps) > 0 {
			t.Errorf("seed %d: nobody can have a place in %+v", seed, r.gaps)
		}
	}
}

// However many transactions are rolled back beside one that goes on.
func TestGapsAreBounded(t *testing.T) {
	t.Parallel()
	var r reach
	for i := range int64(3000) {
		_, request := r.next(time.Unix(0, 0))
		request.Room, request.Octets, request.Seqs = 10, 1, []int64{2*i + 2}
		r.note(&store.ListWriters{Writers: []store.Writer{{Name: "it"}}}, request, 0, time.Unix(0, 0))
	}
	if len(r.gaps) > maxGaps || r.gaps[0].low != 1 || r.gaps[len(r.gaps)-1].high != 5999 {
		t.Errorf("%d gaps, from %+v to %+v", len(r.gaps), r.gaps[0], r.gaps[len(r.gaps)-1])
	}
}
