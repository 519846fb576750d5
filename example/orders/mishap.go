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

// mishaps lets a person at the page see what takes bad luck elsewhere. It is wrapped around the service, which does what it
// always does, and has no hook for this. Needless to say, no real service would have one around it.
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
			slog.ErrorContext(r.Context(), "no mishap", "tenant", tenant, "error", err)
		}
		defer release()
	}
	if !wanted.lostAnswer {
		m.next.ServeHTTP(w, r)
		return
	}
	m.next.ServeHTTP(nowhere{http.Header{}}, r)
	panic(http.ErrAbortHandler) // net/http closes the connection
}

// lockStock locks the tenant's stock, so that an order stands still inside its transaction. What is locked already stays as
// it is. It is unlocked after d, or by release.
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
		_ = tx.Rollback(bounded) // if it fails, the connection is closed, and the rows are unlocked as well
	}()
	return func() { unlock(); <-unlocked }, err
}

// mishap is what a request header asks for, as in
//
//	Mishap: slow=2s, lost-answer
type mishap struct {
	slow       time.Duration // how long the order takes
	lostAnswer bool          // the connection is cut when the service has answered
}

const slowest = 10 * time.Second

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
				return mishap{}, badRequest(fmt.Sprintf("A mishap is slow for at most %v.", slowest))
			}
			m.slow = d
		default:
			return mishap{}, badRequest("There is no such mishap.")
		}
	}
	return m, nil
}

// nowhere is where an answer goes that does not arrive.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header       { return n.header }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}
