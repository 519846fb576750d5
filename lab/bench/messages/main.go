// Command messages measures packages outbox and inbox beside what people use instead: an order that is saved and told of, and a
// message that has one row for its effect. It counts what is lost, doubled and out of order, also when processes are killed. It
// prints what was measured and whether the bars were met.
//
//	make bench/messages                           everything, in six minutes, into docs/benchmarks/report.md
//	make bench/messages BENCH='-quick'            that it runs: these figures say nothing
//	make bench/messages BENCH='-only "idem|plain" -steps stock'  some of it, and nothing is written
//
// The server is its own: a PostgreSQL with durable settings on the disk of temporary files. The broker is memory of this process.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/idem-go/idem/lab/sidebyside"
)

func main() {
	const name = "messages"
	if text := os.Getenv(workerRole); text != "" {
		if err := work(text); err != nil {
			sidebyside.Fail(name, err)
		}
		return
	}
	sidebyside.Main(name, steps, func(ctx context.Context, s *sidebyside.Server, o sidebyside.Options) (fmt.Stringer, error) {
		return measure(ctx, s, o)
	})
}

// measure runs everything on a server.
func measure(ctx context.Context, s *sidebyside.Server, o sidebyside.Options) (*results, error) {
	r, err := newResults(o)
	if err != nil {
		return nil, err
	}
	r.server = s
	r.took, err = sidebyside.Take(ctx, o, steps, s, r)
	return r, err
}

// steps are what is measured, in this order.
var steps = []sidebyside.Step[*sidebyside.Server, *results]{
	{Name: "costs", Run: costs}, {Name: "saving", Run: saving}, {Name: "through", Run: through}, {Name: "lag", Run: lags},
	{Name: "stock", Run: stocks}, {Name: "effects", Run: effects}, {Name: "kills", Run: kills},
}
