package fleet

import (
	"context"
	"sync"
	"time"
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

// Do calls the function do with the home of the tenant. If the cluster refuses the transaction
// because the tenant is moving or has another home, Do tries again until ctx ends. Do also waits
// while no cluster is the home.
func (r *Router) Do(ctx context.Context, tenant string, do func(ctx context.Context, home Cluster) error) error {
	for {
		home, err := r.home(ctx, tenant)
		if err == nil {
			err = do(ctx, home)
		}
		away := Away(err)
		if err != nil && away == nil && err != ErrNoHome { //nolint:errorlint // ErrNoHome joined with another error: a cluster did not answer
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

// home returns the home of the tenant from the cache, or asks the clusters.
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
