package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/idem-go/idem/example/orders/process"
	"github.com/idem-go/idem/idemclient"
)

// storm sends the same order 50 times at once to both instances. This models an impatient user, a
// retrying proxy, and a queue that delivers twice. A lock on the stock keeps the first order from
// finishing before all requests are sent.
func storm(ctx context.Context, s *stage) (string, error) {
	order := teapots()
	lock, err := s.lock(ctx, order.SKU)
	if err != nil {
		return "", err
	}
	defer lock.release()
	flood := s.flood(ctx, order)
	flood.written.Wait()
	_, err = lock.waiter(ctx)
	lock.release()
	flood.answered.Wait()
	if err != nil {
		return "", fmt.Errorf("no order got as far as its transaction: %w", errors.Join(err, flood.err))
	}
	return "the same bytes for all", errors.Join(flood.err, flood.alike())
}

// flood is the set of simultaneous requests of storm and their answers.
type flood struct {
	written, answered sync.WaitGroup
	mu                sync.Mutex
	answers           []answer
	err               error // error of the first request without an answer
}

// flood sends half of the requests to each instance.
func (s *stage) flood(ctx context.Context, o order) *flood {
	f, key := new(flood), idemclient.NewKey()
	for n := range duplicates {
		to := []*process.Process{s.first, s.second}[n%2]
		f.written.Add(1)
		// net/http calls WroteRequest once for each attempt, and Done must be called once for each
		// request.
		written := sync.OnceFunc(f.written.Done)
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { written() },
		})
		f.answered.Go(func() {
			defer written() // also if the request was never written
			f.add(s.send(traced, to, key, o))
		})
	}
	return f
}

func (f *flood) add(a answer, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.answers = append(f.answers, a)
	case f.err == nil:
		f.err = err
	}
}

// alike returns an error unless all answers are 201 and differ only in the replay mark.
func (f *flood) alike() error {
	for _, a := range f.answers {
		if err := errors.Join(a.expect(http.StatusCreated, a.replayed), a.sameAs(f.answers[0])); err != nil {
			return err
		}
	}
	return nil
}
