package fleet

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// Router caches the homes of tenants. A cache entry may be stale: the cluster then refuses the
// transaction, and the Router looks up the home again.
type Router struct {
	clusters []Cluster
	mu       sync.Mutex
	homes    map[string]Cluster
}

// NewRouter returns a Router for these clusters.
func NewRouter(clusters ...Cluster) *Router {
	return &Router{clusters: clusters, homes: map[string]Cluster{}}
}

// movingPause is the delay before a retry while the tenant is being moved. The Router holds no
// connection during the delay.
const movingPause = 10 * time.Millisecond

// Do calls do with the home of the tenant. If do returns an error that contains an AwayError, Do
// looks up the home and calls do again, until ctx ends.
func (r *Router) Do(ctx context.Context, tenant string, do func(ctx context.Context, home Cluster) error) error {
	for {
		home, err := r.home(ctx, tenant)
		if err == nil {
			err = do(ctx, home)
		}
		away := Away(err)
		if err != nil && away == nil && err != ErrNoHome { //nolint:errorlint // joined with another error it says less
			return err
		}
		if err == nil {
			return nil
		}
		if away != nil && !away.Moving {
			r.forget(tenant, home)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(movingPause):
		}
	}
}

// home returns the home from the cache, or asks the clusters.
func (r *Router) home(ctx context.Context, tenant string) (Cluster, error) {
	r.mu.Lock()
	home, known := r.homes[tenant]
	r.mu.Unlock()
	if known {
		return home, nil
	}
	home, err := Home(ctx, r.clusters, tenant)
	if err == nil {
		r.mu.Lock()
		r.homes[tenant] = home
		r.mu.Unlock()
	}
	return home, err
}

// forget removes the entry of tenant from the cache, unless another goroutine has replaced it.
func (r *Router) forget(tenant string, home Cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.homes[tenant].Name == home.Name {
		delete(r.homes, tenant)
	}
}

// Handler returns a handler that serves each request with the handler of the tenant's home. of maps
// the name of a cluster to its handler. Those handlers must use Observer, through which Handler
// learns that a cluster has refused. Handler then repeats the request with the new home. It keeps
// the body in memory, up to limit bytes.
func (r *Router) Handler(tenant func(*http.Request) string, of map[string]http.Handler, limit int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, limit))
		if err != nil {
			http.Error(w, "the body is too large, or broken off", http.StatusRequestEntityTooLarge)
			return
		}
		var a *answer
		err = r.Do(req.Context(), tenant(req), func(ctx context.Context, home Cluster) error {
			a = &answer{header: http.Header{}}
			again := req.Clone(context.WithValue(ctx, refusal{}, a))
			again.Body = io.NopCloser(bytes.NewReader(body))
			of[home.Name].ServeHTTP(a, again)
			return a.refused
		})
		if err != nil || a == nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		a.send(w)
	})
}

// refusal is a context key. Its value is the answer of the current attempt.
type refusal struct{}

// answer buffers a response until it is certain that the cluster was the home.
type answer struct {
	header  http.Header
	status  int
	body    bytes.Buffer
	refused error
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

func (a *answer) send(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	a.WriteHeader(http.StatusOK)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // an error means that the client has gone
}

// Observer is the idem.Observer that the handlers behind a Router must use. It reports to the
// Router that a cluster has refused.
type Observer struct{}

// TraceStart implements idem.Observer.
func (Observer) TraceStart(ctx context.Context, _ idem.TraceStartData) context.Context { return ctx }

// TraceEvent implements idem.Observer.
func (Observer) TraceEvent(context.Context, idem.TraceEventData) {}

// TraceEnd implements idem.Observer.
func (Observer) TraceEnd(ctx context.Context, data idem.TraceEndData) {
	if a, ok := ctx.Value(refusal{}).(*answer); ok && Away(data.Err) != nil {
		a.refused = data.Err
	}
}
