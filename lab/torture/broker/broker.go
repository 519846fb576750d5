package broker

import (
	"encoding/json"
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
	taken   int
	topics  map[string]*topic
	queues  map[string]*queue // by consumer
	refused map[string]int    // how often a letter was refused, by its id
}

// odds are the probabilities of failures of a request.
var odds = unreliable.Odds{
	Stream: 11, Slow: []unreliable.Slow{{Requests: 5, Most: 10 * time.Millisecond}, {Requests: 1, Most: 200 * time.Millisecond}},
	Of: 400, Refused: 8, Dropped: 8, Lost: 14, KilledBefore: 2, Killed: 2, KilledSoon: 1,
}

// Open starts the broker. It writes its books to the file books.
func Open(books string, seed uint64) (*Broker, error) {
	server, err := unreliable.Open(books, seed, odds)
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
	mux := http.NewServeMux()
	mux.HandleFunc("POST /publish", serve(b, b.publish))
	mux.HandleFunc("POST /fetch", serve(b, b.fetch))
	mux.HandleFunc("POST /settle", serve(b, b.settle))
	mux.HandleFunc("POST /standing", serve(b, b.standing))
	b.Serve(mux)
	return b, nil
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

// serve returns the handler of a request. The broker may fail before or after it executes do.
func serve[Q, R any](b *Broker, do func(*Q) R) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var call Call[Q]
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var reply R
		told := b.Do(w, r.URL.Path, call.Slot, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			reply = do(&call.What)
		})
		if told {
			_ = json.NewEncoder(w).Encode(reply)
		}
	}
}

// publish takes letters. After it refuses a letter, it refuses the later letters of the same key
// too.
func (b *Broker) publish(q *Publication) Refusals {
	refused := Refusals{}
	behind := map[[2]string]bool{}
	for _, l := range q.Letters {
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
	b.note(letter.Entry{Taken: true, Position: b.taken, Letter: l.Letter, Altered: l.Altered})
}

func (b *Broker) note(e letter.Entry) {
	e.At = history.Now()
	b.Books.Append(e)
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
		b.note(letter.Entry{Acked: q.Consumer, Letter: of.topic.taken[place]})
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
