package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// mishaps injects faults at the request of a person who uses the page. It wraps the service, which
// has no hook for faults. Do not put such a handler in front of a real service.
type mishaps struct {
	pool        *pgxpool.Pool
	credentials credentials
	next        http.Handler
}

func (m *mishaps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wanted, err := parseMishap(r.Header.Get("Mishap"))
	if err != nil {
		refuse(w, r, err)
		return
	}
	if tenant, err := m.credentials.tenant(r); err == nil && wanted.slow > 0 {
		release, err := m.lockStock(r.Context(), tenant, wanted.slow)
		if err != nil {
			slog.ErrorContext(r.Context(), "the fault was not injected", "tenant", tenant, "error", err)
		}
		defer release()
	}
	if !wanted.lostAnswer {
		m.next.ServeHTTP(w, r)
		return
	}
	m.next.ServeHTTP(nowhere{http.Header{}}, r)
	panic(http.ErrAbortHandler) // makes net/http close the connection
}

// lockStock locks the stock of the tenant, so that an order waits inside its transaction. Rows that
// another transaction has locked are skipped. The lock ends after d or when release is called.
// release is never nil.
func (m *mishaps) lockStock(ctx context.Context, tenant string, d time.Duration) (release func(), err error) {
	tx, err := m.pool.Begin(ctx)
	if err != nil {
		return func() {}, err
	}
	ctx, unlock := context.WithTimeout(context.WithoutCancel(ctx), d)
	unlocked := make(chan struct{})
	_, err = tx.Exec(ctx, `SELECT FROM stock WHERE tenant = $1 FOR UPDATE SKIP LOCKED`, tenant)
	go func() {
		defer close(unlocked)
		<-ctx.Done()
		bounded, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = tx.Rollback(bounded) // on failure pgx closes the connection, which also unlocks
	}()
	return func() { unlock(); <-unlocked }, err
}

// mishap is the content of the request header Mishap, for example
//
//	Mishap: slow=2s, lost-answer
type mishap struct {
	slow       time.Duration // how long the stock is locked
	lostAnswer bool          // close the connection instead of sending the answer
}

// slowest is the longest delay that a request may ask for.
const slowest = 10 * time.Second

// parseMishap parses the header Mishap. An unknown fault or too long a delay is a problem with
// status 400.
func parseMishap(header string) (mishap, error) {
	var m mishap
	for wanted := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(wanted), "=")
		switch name {
		case "":
		case "lost-answer":
			m.lostAnswer = true
		case "slow":
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 || d > slowest {
				return mishap{}, badRequest(fmt.Sprintf("The delay in the header Mishap is at most %v.", slowest))
			}
			m.slow = d
		default:
			return mishap{}, badRequest("The header Mishap names an unknown fault.")
		}
	}
	return m, nil
}

// nowhere is a ResponseWriter that discards the response.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header       { return n.header }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}
