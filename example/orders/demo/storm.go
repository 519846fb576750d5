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

// storm sends one order from everywhere at once, like an impatient user, a proxy that retries and a queue that delivers
// twice. None is answered before all of them are sent.
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

// flood is one order under way many times.
type flood struct {
	written, answered sync.WaitGroup
	mu                sync.Mutex
	answers           []answer
	err               error // the first, of those that got no answer
}

// flood sends half of the attempts to each instance.
func (s *stage) flood(ctx context.Context, o order) *flood {
	f, key := new(flood), idemclient.NewKey()
	for n := range duplicates {
		to := []*process.Process{s.first, s.second}[n%2]
		f.written.Add(1)
		written := sync.OnceFunc(f.written.Done)
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { written() },
		})
		f.answered.Go(func() {
			defer written() // if it did not come to that
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

// alike returns an error unless all answers are one.
func (f *flood) alike() error {
	for _, a := range f.answers {
		if err := errors.Join(a.expect(http.StatusCreated, a.replayed), a.sameAs(f.answers[0])); err != nil {
			return err
		}
	}
	return nil
}
