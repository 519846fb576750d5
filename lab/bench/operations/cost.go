package operations

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/pgproxy"
)

// cost measures what an operation of a single client costs apart from time. Background work of the
// contestant is included, above all polling.
func (p plan) cost(ctx context.Context, s *runner.Server, c contestant.Contestant) (result.Values, error) {
	dsn, err := s.Database(ctx, contestant.Schema, c.Prepare)
	if err != nil {
		return nil, err
	}
	proxy, err := pgproxy.New(dsn)
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	other, err := bank.Open(0, false)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	// The server's statistics are complete only when the sessions have ended. A run without and a
	// run with counted operations are therefore compared. Both include the costs of starting and
	// stopping.
	var transactions [2]int
	values := result.Values{}
	few := p.ops/10 + 1
	for i, counted := range []int{0, p.ops} {
		before, err := committed(ctx, s, dsn)
		if err != nil {
			return nil, err
		}
		if err := oneLife(ctx, s, c, proxy, other.URL, few, counted, values); err != nil {
			return nil, err
		}
		after, err := committed(ctx, s, dsn)
		if err != nil {
			return nil, err
		}
		transactions[i] = after - before
	}
	values["transactions"] = float64(transactions[1]-transactions[0]) / float64(p.ops)
	return values, nil
}

// oneLife opens a contestant, warms it up with some operations, and measures further ones.
func oneLife(ctx context.Context, s *runner.Server, c contestant.Contestant, proxy *pgproxy.Proxy, url string, warm, counted int, values result.Values) error {
	b, err := openBooth(ctx, c, contestant.Place{DSN: proxy.DSN()}, url, poolSize)
	if err != nil {
		return err
	}
	defer b.Close()
	do := func(operations int) error {
		_, err := b.load(ctx, 1, runner.Limit{Calls: operations})
		return err
	}
	if err := do(warm); err != nil || counted == 0 {
		return err
	}
	if _, err := s.Admin.Exec(ctx, "checkpoint"); err != nil {
		return err
	}
	// The first write to a page after a checkpoint logs the whole page: write to the pages first.
	if err := do(min(warm, counted)); err != nil {
		return err
	}
	begin, err := s.Position(ctx)
	if err != nil {
		return err
	}
	proxy.ResetTally()
	if err := do(counted); err != nil {
		return err
	}
	trips := proxy.ResetTally().Turns
	end, err := s.Position(ctx)
	if err != nil {
		return err
	}
	commits, bytes, err := s.Logged(ctx, begin, end)
	each := func(n float64) float64 { return n / float64(counted) }
	values["trips"], values["commits"], values["wal"] = each(float64(trips)), each(commits), each(bytes)
	return err
}

// committed returns the number of transactions of a database in pg_stat_database. It first waits
// until no session is connected, but at most a second: some sessions stay connected and are idle.
func committed(ctx context.Context, s *runner.Server, dsn string) (n int, err error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return 0, err
	}
	for deadline := time.Now().Add(time.Second); ; {
		var sessions int
		err := s.Admin.QueryRow(ctx, "select (select count(*) from pg_stat_activity where datname = $1), xact_commit from pg_stat_database where datname = $1",
			config.Database).Scan(&sessions, &n)
		if err != nil || sessions == 0 || time.Now().After(deadline) {
			return n, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
