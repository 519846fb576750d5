// Package broker is a message broker that runs in another process than the workers. It is an HTTP
// server with topics, and its books contain every message (package letter) that it took or refused.
//
// It delivers each letter at least once to each consumer of its topic, and the letters of a key in
// order and to one process at a time. It fails in many ways: it is slow, refuses letters, takes
// some letters of a request but not all, loses its answer, forgets acknowledgements, redelivers
// letters that were acknowledged long ago, delivers another payload under a known id, and has the
// calling process killed before and after it takes something.
package broker

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/unreliable"
)

// Broker is the server.
type Broker struct {
	*unreliable.Server

	mu      sync.Mutex
	calm    bool
	rng     *rand.Rand
	books   []letter.Entry
	taken   int
	topics  map[string]*topic
	queues  map[string]*queue // queues by the name of their consumer
	refused map[string]int    // how often a letter was refused, by its id
}

// odds are the probabilities of failures of a request.
var odds = unreliable.Odds{
	Stream: 11, Slow: []unreliable.Slow{{Requests: 5, Most: 10 * time.Millisecond}, {Requests: 1, Most: 200 * time.Millisecond}},
	Of: 400, Refused: 8, Dropped: 8, Lost: 14, KilledBefore: 2, Killed: 2, KilledSoon: 1,
}

// Open starts the broker.
func Open(seed uint64) (*Broker, error) {
	server, err := unreliable.Open(seed, odds)
	if err != nil {
		return nil, err
	}
	b := &Broker{
		Server: server, rng: rand.New(rand.NewPCG(seed, 13)),
		topics: map[string]*topic{}, queues: map[string]*queue{}, refused: map[string]int{},
	}
	for _, c := range letter.Consumers() {
		b.queues[c.Name] = &queue{consumer: c, topic: b.topicOf(c.Topic), lines: map[string]*line{}, delivered: map[int]int{}}
	}
	handle(b, Publish, b.publish)
	handle(b, Fetch, b.fetch)
	handle(b, Settle, b.settle)
	handle(b, Counters, b.standing)
	return b, nil
}

// handle makes the broker execute requests with the function do, one at a time.
func handle[Q, R any](b *Broker, requests unreliable.Request[Q, R], do func(*Q) R) {
	requests.Handle(b.Server, nil, func(q *Q) (R, int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return do(q), http.StatusOK
	})
}

// Books returns what the broker has taken and refused, in order.
func (b *Broker) Books() []letter.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.books
}

func (b *Broker) topicOf(name string) *topic {
	if b.topics[name] == nil {
		b.topics[name] = new(topic)
	}
	return b.topics[name]
}

// Calm stops all failures, except the refusal of letters whose fate is to be refused. Requests may
// still be slow.
func (b *Broker) Calm() {
	b.Server.Calm()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calm = true
}

// publish takes or refuses letters. After it refuses a letter, it refuses the later letters of the
// same key too.
func (b *Broker) publish(letters *[]Sent) Refusals {
	refused := Refusals{}
	behind := map[[2]string]bool{}
	for _, l := range *letters {
		place := [2]string{l.Topic, l.Key}
		switch {
		case l.Key != "" && behind[place]:
			refused[l.ID] = "it is behind another one"
		case b.refuses(l.Letter):
			b.refused[l.ID]++
			behind[place] = true
			refused[l.ID] = "it is not wanted"
			b.note(letter.Entry{Letter: l.Letter})
		default:
			b.take(l)
		}
	}
	return refused
}

func (b *Broker) refuses(l letter.Letter) bool {
	switch l.Fate {
	case letter.Unwanted, letter.Unnamed:
		return true
	case letter.Stubborn:
		return b.refused[l.ID] < 2
	}
	return !b.calm && b.rng.IntN(100) == 0
}

func (b *Broker) take(l Sent) {
	b.taken++
	t := b.topicOf(l.Topic)
	t.taken = append(t.taken, l.Letter)
	b.note(letter.Entry{Taken: true, Letter: l.Letter, Altered: l.Altered})
}

func (b *Broker) note(e letter.Entry) {
	e.At = history.Now()
	b.books = append(b.books, e)
}

// fetch delivers letters. Now and then it delivers letters again that were acknowledged, or adds a
// forged letter: another payload under the id of an acknowledged one.
func (b *Broker) fetch(q *Wish) []Delivery {
	of := b.queues[q.Consumer]
	if !b.calm && b.rng.IntN(40) == 0 {
		of.rewind(b.rng.IntN(30))
	}
	deliveries := []Delivery{}
	for _, place := range of.take(b.rng, q.Most, time.Now()) {
		of.delivered[place]++
		deliveries = append(deliveries, Delivery{Place: place, Letter: of.topic.taken[place], Count: of.delivered[place]})
	}
	if len(of.acked) > 0 && !b.calm && b.rng.IntN(20) == 0 {
		l := of.topic.taken[of.acked[b.rng.IntN(len(of.acked))]]
		if !l.Fate.CanDie() {
			l.N += forgery
			deliveries = append(deliveries, Delivery{Place: -1, Forged: true, Letter: l})
		}
	}
	return deliveries
}

// forgery is added to the number of a letter to change its payload.
const forgery = 1 << 20

// settle records the acknowledgements of a consumer and when other letters are delivered again.
func (b *Broker) settle(q *Settlement) bool {
	of := b.queues[q.Consumer]
	acked, again := map[int]bool{}, map[int]time.Time{}
	for _, place := range q.Acked {
		acked[place] = true
	}
	for place, after := range q.Again {
		again[place] = time.Now().Add(after)
	}
	of.settle(acked, again)
	return true
}

func (b *Broker) standing(*struct{}) Standing {
	s := Standing{Taken: b.taken}
	for _, q := range b.queues {
		s.Pending += q.pending()
	}
	return s
}

// Sent is a letter to publish. Altered reports that the message differs from what was added to the
// outbox.
type Sent struct {
	letter.Letter
	Altered bool
}

// Refusals has the ids of the letters that the broker did not take, each with the reason.
type Refusals map[string]string

// Wish is the request of a consumer for letters. Most is the maximum number of letters.
type Wish struct {
	Consumer string
	Most     int
}

// Delivery is a letter with its position in the topic. A delivery with the position -1 must not be
// acknowledged.
type Delivery struct {
	Place  int
	Forged bool // for the history only; consumers ignore the field
	Letter letter.Letter
	Count  int // deliveries so far, including this one
}

// Settlement has the acknowledgements and the retries of a consumer.
type Settlement struct {
	Consumer string
	Acked    []int
	Again    map[int]time.Duration // delay before the next delivery, by position
}

// Standing has counters of the broker.
type Standing struct {
	Taken   int // letters that the broker took
	Pending int // deliveries that are not acknowledged
}

// Requests to the broker.
const (
	Publish  unreliable.Request[[]Sent, Refusals]   = "publish" // returns the letters that were refused
	Fetch    unreliable.Request[Wish, []Delivery]   = "fetch"
	Settle   unreliable.Request[Settlement, bool]   = "settle" // acknowledges deliveries and requests others again
	Counters unreliable.Request[struct{}, Standing] = "counters"
)

// lease is how long a delivery is reserved for the process that fetched it.
const lease = 1500 * time.Millisecond

type topic struct {
	taken []letter.Letter
}

// queue is the state of one consumer of a topic.
type queue struct {
	consumer  letter.Consumer
	topic     *topic
	read      int              // number of letters of the topic that were put into lines so far
	lines     map[string]*line // lines by key; a letter without a key has its own line
	open      []*line          // lines that are not empty
	acked     []int            // positions of acknowledged letters in the topic, the latest last
	delivered map[int]int      // number of deliveries, by position
}

// line is the queue of those letters of one key that are not acknowledged.
type line struct {
	key    string
	places []int     // positions in the topic
	until  time.Time // end of the lease
	listed bool
}

// enlist adds new letters of the topic to their lines.
func (q *queue) enlist() {
	for ; q.read < len(q.topic.taken); q.read++ {
		q.put(q.read, false)
	}
}

// put adds a letter to the end of its line, or to the front if first is set.
func (q *queue) put(place int, first bool) {
	key := q.topic.taken[place].Key
	if key == "" {
		key = q.topic.taken[place].ID
	}
	l := q.lines[key]
	if l == nil {
		l = &line{key: key}
		q.lines[key] = l
	}
	if first {
		l.places = append([]int{place}, l.places...)
	} else {
		l.places = append(l.places, place)
	}
	if !l.listed {
		l.listed = true
		q.open = append(q.open, l)
	}
}

// take leases lines until it has the requested number of letters. For an unordered consumer it
// sometimes ignores leases, so that several processes get the same letters at the same time.
func (q *queue) take(r *rand.Rand, most int, now time.Time) []int {
	q.enlist()
	twice := !q.consumer.Ordered && r.IntN(3) == 0
	var taken []int
	var left []*line
	r.Shuffle(len(q.open), func(i, j int) { q.open[i], q.open[j] = q.open[j], q.open[i] })
	for _, l := range q.open {
		if len(l.places) == 0 {
			l.listed = false
			delete(q.lines, l.key)
			continue
		}
		left = append(left, l)
		if len(taken) >= most || now.Before(l.until) && !twice {
			continue
		}
		l.until = now.Add(lease)
		taken = append(taken, l.places[:min(len(l.places), most-len(taken))]...)
	}
	q.open = left
	return taken
}

// settle removes the acknowledged letters. If the first remaining letter of a line is to be
// retried, it sets the time of the retry.
func (q *queue) settle(acked map[int]bool, again map[int]time.Time) {
	for _, l := range q.open {
		var kept []int
		for _, place := range l.places {
			if acked[place] {
				q.acked = append(q.acked, place)
				l.until = time.Time{}
				continue
			}
			kept = append(kept, place)
		}
		l.places = kept
	}
	for _, l := range q.open {
		if len(l.places) > 0 {
			if at, ok := again[l.places[0]]; ok {
				l.until = at
			}
		}
	}
}

// rewind forgets the latest n acknowledgements.
func (q *queue) rewind(n int) {
	n = min(n, len(q.acked))
	for i := range n {
		q.put(q.acked[len(q.acked)-1-i], true)
	}
	q.acked = q.acked[:len(q.acked)-n]
}

// pending returns the number of letters that are not acknowledged.
func (q *queue) pending() int {
	q.enlist()
	n := 0
	for _, l := range q.open {
		n += len(l.places)
	}
	return n
}
