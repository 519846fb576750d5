package webhook_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/inboxtest"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/webhook"
)

func TestHandler_PassesTheSuite(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, inboxtest.Suite{
		Pool: func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) },
		New: func(t testing.TB, pool *pgxpool.Pool) inboxtest.Source {
			p := &provider{t: t}
			return inboxtest.Source{
				Name: "billing", Deliver: p.deliver, Left: p.left,
				Run: func(ctx context.Context, handle inboxtest.Handle, options ...inbox.Option) error {
					return p.send(ctx, pool, handle, options)
				},
				Carried: func(m *inbox.Message) { m.Key, m.Type, m.Headers = "", "", nil }, // the scheme signs the ID and the body
			}
		},
	})
}

// provider sends each of its events until it is answered 2xx.
type provider struct {
	t      testing.TB
	mu     sync.Mutex
	events []*inbox.Message
}

func (p *provider) deliver(_ context.Context, events ...inbox.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		p.events = append(p.events, &e)
	}
	return nil
}

func (p *provider) waiting() []*inbox.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events)
}

func (p *provider) left(context.Context) (int, error) { return len(p.waiting()), nil }

func (p *provider) remove(event *inbox.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = slices.DeleteFunc(p.events, func(e *inbox.Message) bool { return e == event })
}

// send sends events to a Handler, eight at a time, while redriven dead letters are handled.
func (p *provider) send(ctx context.Context, pool *pgxpool.Pool, handle inboxtest.Handle, options []inbox.Option) error {
	config := webhook.HandlerConfig{Consumer: "billing", Source: "stripe", Verifier: verifier(p.t, webhook.StandardWebhooks, standardSecret), Inbox: options,
		Logger: slog.New(slog.DiscardHandler)}
	h, err := webhook.NewHandler(pool, config, func(tx pgx.Tx, _ *http.Request, m inbox.Message) error { return handle(tx, m) })
	if err != nil {
		return err
	}
	server := httptest.NewServer(h)
	defer server.Close()
	var senders sync.WaitGroup
	defer senders.Wait()
	senders.Go(func() {
		for pause := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-pause.C {
			for some := range slices.Chunk(p.waiting(), 8) {
				var group sync.WaitGroup
				for _, event := range some {
					group.Go(func() { p.post(ctx, server, event) })
				}
				group.Wait()
			}
		}
	})
	return inbox.RunRedrives(ctx, pool, "billing", handle, inbox.RedriveConfig{Options: options})
}

func (p *provider) post(ctx context.Context, server *httptest.Server, event *inbox.Message) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, bytes.NewReader(event.Payload))
	if err != nil {
		p.t.Error(err)
		return
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header = http.Header{"Webhook-Id": {event.ID}, "Webhook-Timestamp": {at}, "Webhook-Signature": {webhook.SignStandard(event.ID, at, event.Payload, standardSecret)}}
	response, err := server.Client().Do(r)
	if err != nil {
		return // the process has ended
	}
	response.Body.Close()
	if response.StatusCode/100 == 2 {
		p.remove(event)
	}
}
