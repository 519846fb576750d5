// Package bank is the external system that operations call. It is an HTTP server that runs in
// another process than the workers and keeps its own books. Depending on the policy of a call, it
// recognizes the key of a repeated request, answers what became of a key, or does neither. It is
// slow, refuses requests, loses its answers, and has the calling process killed before or after it
// books.
package bank

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/unreliable"
)

// Request is a request to the bank.
type Request struct {
	Key        string // the idempotency key
	Operation  string
	Step       string
	Safety     journal.Safety
	Generation int           // how often the sender of an Asked call has asked for its outcome
	Declined   bool          // the bank must decline it
	Slow       bool          // the bank must answer slowly
	Sent       time.Duration // time of sending, by the clock of package history
	Place      string        // what the charge is for
	Refunds    string        // in a refund: the field Place of the charge
	Given      string        // value that an undo got from the step that it undoes
}

// Reply is an answer of the bank.
type Reply struct {
	Receipt    string
	Done       bool
	Generation int
}

// Bank is the server.
type Bank struct {
	*unreliable.Server

	mu       sync.Mutex
	receipts int
	books    []journal.Entry
	known    map[string]string // receipts by key
	steps    map[string]string // receipts by operation and step
	asked    map[string]int    // how often the outcome of a key was asked for, by key
	// closed has the time at which a person learned that a call did not happen, by operation and
	// step.
	closed map[string]time.Duration
}

// odds are the probabilities of failures of a request.
var odds = unreliable.Odds{
	Stream: 7,
	Slow: []unreliable.Slow{
		{Requests: 6, Most: 20 * time.Millisecond}, {Requests: 2, Most: 200 * time.Millisecond}, {Requests: 1, Most: time.Second},
	},
	Of: 100, Refused: 8, Dropped: 4, Lost: 10, KilledBefore: 2, Killed: 2, KilledSoon: 1,
}

// Open starts the bank.
func Open(seed uint64) (*Bank, error) {
	server, err := unreliable.Open(seed, odds)
	if err != nil {
		return nil, err
	}
	b := &Bank{Server: server, known: map[string]string{}, steps: map[string]string{}, asked: map[string]int{}, closed: map[string]time.Duration{}}
	book.Handle(server, b.receive, b.enter)
	Ask.Handle(server, nil, b.standing)
	LookUp.Handle(server, nil, b.lookUp)
	return b, nil
}

// Books returns all requests to book something, and all bookings.
func (b *Bank) Books() []journal.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.books
}

const slow = 150 * time.Millisecond

func (b *Bank) receive(q *Request) {
	b.mu.Lock()
	b.note(q, "", false)
	b.mu.Unlock()
	if q.Slow {
		time.Sleep(slow)
	}
}

// enter books a request. For a Keyed request whose key is known, it returns the earlier receipt. If
// the bank has answered "not booked" to the sender or to a person, it refuses requests from before
// that answer, so that the answer stays true.
func (b *Bank) enter(q *Request) (Reply, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, ok := b.known[q.Key]
	switch {
	case q.Declined:
		return Reply{}, http.StatusPaymentRequired
	case q.Safety == journal.Keyed && ok:
		return Reply{Receipt: known}, http.StatusOK
	case q.Safety == journal.Asked && q.Generation < b.asked[q.Key]:
		return Reply{}, http.StatusConflict // sent before the sender asked for the outcome: the answer that it got must stay true
	case q.Sent < b.closed[q.Operation+" "+q.Step]:
		return Reply{}, http.StatusConflict // sent before a person asked whether the step was booked: the answer, that it was not, must stay true
	}
	b.receipts++
	receipt := fmt.Sprint("receipt ", b.receipts)
	b.known[q.Key], b.steps[q.Operation+" "+q.Step] = receipt, receipt
	b.note(q, receipt, true)
	return Reply{Receipt: receipt}, http.StatusOK
}

// standing answers whether a key was booked. Later requests must have the new generation, which
// proves that their sender knows the answer. Requests of an older generation are refused.
func (b *Bank) standing(q *Request) (Reply, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked[q.Key]++
	receipt, done := b.known[q.Key]
	return Reply{Receipt: receipt, Done: done, Generation: b.asked[q.Key]}, http.StatusOK
}

// lookUp answers a person whether a step was booked. If it was not, the bank refuses all requests
// for the step that were sent before this answer.
func (b *Bank) lookUp(q *Request) (Reply, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	receipt, done := b.steps[q.Operation+" "+q.Step]
	if !done {
		b.closed[q.Operation+" "+q.Step] = history.Now()
	}
	return Reply{Receipt: receipt, Done: done}, http.StatusOK
}

func (b *Bank) note(q *Request, receipt string, booked bool) {
	b.books = append(b.books, journal.Entry{
		At: history.Now(), Booked: booked, Key: q.Key, Operation: q.Operation, Step: q.Step, Receipt: receipt,
		Place: q.Place, Refunds: q.Refunds, Given: q.Given,
	})
}

// ErrDeclined reports that the bank declined the request for good.
var ErrDeclined = errors.New("the bank declines")

// Requests to the bank.
const (
	book   unreliable.Request[Request, Reply] = "book"
	Ask    unreliable.Request[Request, Reply] = "ask"     // returns the outcome of a key
	LookUp unreliable.Request[Request, Reply] = "look-up" // returns what the books have about a step of an operation
)

// Book books a charge or a refund and returns its receipt. The error is ErrDeclined if the bank
// declined.
func Book(ctx context.Context, c *unreliable.Client, q Request) (receipt string, err error) {
	reply, err := book.Send(ctx, c, q)
	if errors.Is(err, unreliable.StatusError(http.StatusPaymentRequired)) {
		err = ErrDeclined
	}
	return reply.Receipt, err
}
