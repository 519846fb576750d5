package outbox

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/store"
)

type transaction struct {
	name   string
	locked bool
	ready  bool // prepared
	places []int64
	after  []int64 // the places that were committed when it began
}

// traffic are transactions that lock the table, take places, roll back to savepoints, prepare, commit and roll back in any order.
type traffic struct {
	random         *rand.Rand
	open           []*transaction
	committed, all []int64 // what is in the table, and what ever was
	after          map[int64][]int64
	place          int64
	names          int
	now            time.Time
}

func newTraffic(seed uint64) *traffic {
	return &traffic{random: rand.New(rand.NewPCG(seed, 1)), after: map[int64][]int64{}, now: time.Unix(0, 0)}
}

func (t *traffic) name() string { t.names++; return fmt.Sprint(t.names) }

// step is one of a transaction, or a look of the relay.
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
		if t.random.IntN(4) > 0 { // else it has the lock, and no place yet
			t.place++
			tx.places = append(tx.places, t.place)
		}
	case n < 13 && len(t.open) > 0:
		tx := t.open[t.random.IntN(len(t.open))]
		if !tx.ready { // ROLLBACK TO a savepoint of its beginning
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

// list lists the writers.
func (t *traffic) list(list *store.ListWriters) {
	for _, tx := range t.open {
		if list != nil && tx.locked {
			list.Writers = append(list.Writers, store.Writer{Name: tx.name, Prepared: tx.ready})
		}
	}
}

// read answers a request.
func (t *traffic) read(request *store.ReadMessages) {
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

// gapsOnly makes the next read one of gaps and what is beyond them: a read of everything would hide what a gap has lost.
func (t *traffic) gapsOnly(r *progress) {
	if r.top > 0 {
		r.wholeDue = t.now.Add(time.Hour)
	}
}

// check reports what was not read, or twice, or too early. Only what is of one destination has an order.
func (t *traffic) check(test *testing.T, seed uint64, read []int64, destinations int64) {
	test.Helper()
	if len(t.committed) > 0 || len(read) != len(t.all) {
		test.Fatalf("seed %d: %d of %d were read, %v are left", seed, len(read), len(t.all), t.committed)
	}
	met := map[int64]bool{}
	for _, seq := range read {
		for _, before := range t.after[seq] {
			if !met[before] && before%destinations == seq%destinations {
				test.Fatalf("seed %d: %d was read before %d, which was committed before it was begun", seed, seq, before)
			}
		}
		if met[seq] {
			test.Fatalf("seed %d: %d was read twice", seed, seq)
		}
		met[seq] = true
	}
}

// A stream is read in portions. Whatever is committed is read once, and before what was begun after its commit.
func TestEverythingThatIsCommittedIsReadOnceAndInOrder(t *testing.T) {
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
			if traffic.random.IntN(5) == 0 && len(done) > 0 { // the broker goes away in the middle
				done = done[:traffic.random.IntN(len(done))]
				r.back(request.Seqs[len(done)])
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
		traffic.check(t, seed, read, 1)
		if len(traffic.open) == 0 && len(r.gaps) > 0 {
			t.Errorf("seed %d: no transaction can have a place in %+v", seed, r.gaps)
		}
	}
}

// desk is a destination of three, by the place.
type desk struct {
	hand []int64
	left int64
}

func (d *desk) leave(place int64) {
	if d.left == 0 || place < d.left {
		d.left = place
	}
}

// Destinations that are slow or away leave what was read for them, which a fork reads again, while the others are read further.
func TestForkClosesNoGapAndLosesNothing(t *testing.T) {
	t.Parallel()
	forks := 0
	for seed := range uint64(200) {
		var r progress
		var read []int64
		traffic, desks := newTraffic(seed), [3]desk{}
		end := func(d *desk) {
			n := len(d.hand)
			if n > 0 && traffic.random.IntN(4) == 0 {
				n = traffic.random.IntN(n)
				d.leave(d.hand[n])
			}
			read = append(read, d.hand[:n]...)
			traffic.remove(d.hand[:n])
			d.hand = nil
		}
		look := func(between func()) {
			traffic.now = traffic.now.Add(time.Duration(traffic.random.IntN(100)) * time.Millisecond)
			traffic.gapsOnly(&r)
			from, again := &r, []*desk(nil)
			place := int64(0)
			for i := range desks {
				if d := &desks[i]; d.left > 0 && len(d.hand) == 0 && traffic.random.IntN(2) == 0 {
					if again = append(again, d); place == 0 || d.left < place {
						place = d.left
					}
					d.left = 0
				}
			}
			if place > 0 {
				forks++
				from = r.fork(traffic.now)
				from.back(place)
			}
			list, request := from.next(traffic.now)
			if from != &r {
				list = nil
			}
			traffic.list(list)
			between()
			traffic.read(request)
			from.note(list, request, time.Second, traffic.now)
			busy := [3]bool{}
			for i := range desks {
				busy[i] = len(desks[i].hand) > 0
			}
			for _, seq := range request.Seqs {
				d := &desks[seq%3]
				switch {
				case slices.Contains(d.hand, seq):
				case busy[seq%3] || d.left > 0:
					d.leave(seq)
				default:
					d.hand = append(d.hand, seq)
				}
			}
			for _, d := range again {
				if n := len(request.Seqs); n == request.Room {
					d.leave(request.Seqs[n-1] + 1)
				}
			}
			if i := traffic.random.IntN(6); i < 3 {
				end(&desks[i])
			}
		}
		for range 400 {
			traffic.step(look)
		}
		for range 300 {
			look(func() {})
		}
		for i := range desks {
			end(&desks[i])
		}
		for range 300 {
			look(func() {})
		}
		traffic.check(t, seed, read, 3)
	}
	if forks < 2000 {
		t.Errorf("%d forks", forks)
	}
}

// However many transactions are rolled back beside one that goes on.
func TestGapsAreBounded(t *testing.T) {
	t.Parallel()
	var r progress
	for i := range int64(3000) {
		_, request := r.next(time.Unix(0, 0))
		request.Room, request.Octets, request.Seqs = 10, 1, []int64{2*i + 2}
		r.note(&store.ListWriters{Writers: []store.Writer{{Name: "it"}}}, request, 0, time.Unix(0, 0))
	}
	if len(r.gaps) > maxGaps || r.gaps[0].low != 1 || r.gaps[len(r.gaps)-1].high != 5999 {
		t.Errorf("%d gaps, from %+v to %+v", len(r.gaps), r.gaps[0], r.gaps[len(r.gaps)-1])
	}
}
