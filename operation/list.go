package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// Filter selects operations. Its zero value selects all of them, 100 at a time.
type Filter struct {
	State string        // running, parked, completed, failed or undone; empty: any
	Name  string        // of the definition; empty: any
	Step  string        // the one under way, or waited for; empty: any
	Scope string        // what the scope begins with
	Older time.Duration // begun at least that long ago, by the database's clock
	After string        // the id of the last operation of the page before
	Limit int           // operations in a page; 0 means 100, and 1,000 is the most
}

// Listed is an operation of a List, without its input and its steps: Show tells more.
type Listed struct {
	ID        string
	Scope     string
	Name      string
	State     string
	Undoing   bool
	Step      string
	Attempts  int
	Reason    string // why it is parked
	CreatedAt time.Time
	Since     time.Time // when the step was begun
	EndedAt   time.Time // zero until it has ended
}

const (
	defaultPage = 100
	maxPage     = 1000
)

// firstID is below the id of every operation.
const firstID = "00000000-0000-0000-0000-000000000000"

var states = []string{
	"", string(store.OperationRunning), string(store.OperationParked), string(store.OperationCompleted),
	string(store.OperationFailed), string(store.OperationUndone),
}

// List returns a page of operations, in the order of their ids, which says nothing about time. The next page is the same
// filter with After set to the last id; a page with fewer than Limit operations is the last. Operations that run or are parked
// have an index. To find others by name, scope or step, List reads the table from After on until the page is full.
func List(ctx context.Context, pool *pgxpool.Pool, f Filter) ([]Listed, error) {
	query, err := f.query()
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, errors.New("operation: pool is nil")
	}
	engine := txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	if err := engine.Query(ctx, query); err != nil {
		return nil, err
	}
	page := make([]Listed, len(query.Listed))
	for i, o := range query.Listed {
		page[i] = Listed{
			ID: o.OperationID, Scope: o.Scope, Name: o.Name, State: string(o.State), Undoing: o.Undoing, Step: o.Step,
			Attempts: o.Attempts, Reason: o.Reason, CreatedAt: o.CreatedAt, Since: o.Since, EndedAt: o.EndedAt,
		}
	}
	return page, nil
}

func (f *Filter) query() (*store.ListOperations, error) {
	after := firstID
	if f.After != "" {
		id, err := parsedID(f.After)
		if err != nil {
			return nil, fmt.Errorf("%w: Filter.After is %.40q", err, f.After)
		}
		after = id
	}
	switch {
	case !slices.Contains(states, f.State):
		return nil, fmt.Errorf("operation: Filter.State is %.40q, and not one of running, parked, completed, failed, undone", f.State)
	case f.Limit < 0, f.Limit > maxPage:
		return nil, fmt.Errorf("operation: Filter.Limit is %d, and not between 0 and %d", f.Limit, maxPage)
	case f.Older < 0:
		return nil, fmt.Errorf("operation: Filter.Older is negative: %v", f.Older)
	}
	room := f.Limit
	if room == 0 {
		room = defaultPage
	}
	return &store.ListOperations{
		State: store.OperationState(f.State), After: after, Scope: f.Scope, Name: f.Name, Step: f.Step, Age: f.Older, Room: room,
	}, nil
}

// RetryAll retries the parked operations that f selects, each in a transaction of its own, and returns how many. An error ends it:
// what was retried before stays so, and another RetryAll goes on with the rest. f.State is parked, or empty; f.Limit is the
// size of a page, and bounds nothing.
func RetryAll(ctx context.Context, pool *pgxpool.Pool, f Filter) (int, error) {
	if f.State == "" {
		f.State = string(store.OperationParked)
	}
	if f.State != string(store.OperationParked) {
		return 0, fmt.Errorf("operation: RetryAll is for parked operations, and Filter.State is %.40q", f.State)
	}
	return forEach(ctx, pool, f, Retry)
}

// CancelAll cancels the operations that f selects, as RetryAll retries them. f.State is running or parked: it has to be
// said.
func CancelAll(ctx context.Context, pool *pgxpool.Pool, f Filter) (int, error) {
	if f.State != string(store.OperationParked) && f.State != string(store.OperationRunning) {
		return 0, fmt.Errorf("operation: CancelAll is for operations that are running or parked, and Filter.State is %.40q", f.State)
	}
	return forEach(ctx, pool, f, Cancel)
}

// forEach does something to every operation that f selects, once. An operation that has changed its state since it was listed
// is left alone.
func forEach(ctx context.Context, pool *pgxpool.Pool, f Filter, do func(context.Context, *pgxpool.Pool, string) error) (n int, err error) {
	for {
		page, err := List(ctx, pool, f)
		if err != nil || len(page) == 0 {
			return n, err
		}
		for _, o := range page {
			switch err := do(ctx, pool, o.ID); {
			case err == nil:
				n++
			case errors.Is(err, ErrNotParked), errors.Is(err, ErrUnknownOperation):
			default:
				return n, fmt.Errorf("operation %s: %w", o.ID, err)
			}
		}
		f.After = page[len(page)-1].ID
	}
}
