// Command messages measures packages outbox and inbox beside what people use instead: an order that is saved and told of, and a
// message that has one row for its effect. It counts what is lost, doubled and out of order, also when processes are killed. It
// prints what was measured and whether the bars were met.
//
//	make bench/messages                           everything, in six minutes, into docs/benchmarks.md
//	make bench/messages BENCH='-quick'            that it runs: these figures say nothing
//	make bench/messages BENCH='-only "idem|plain" -steps stock'  some of it, and nothing is written
//
// The server is its own: a PostgreSQL with durable settings on the disk of temporary files. The broker is memory of this process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem/internal/sidebyside"
)

type options struct {
	quick  bool
	only   string
	steps  string
	report string
	data   string
	seed   uint64
}

func main() {
	if text := os.Getenv(workerRole); text != "" {
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, "messages:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.BoolVar(&o.quick, "quick", false, "as little as shows that it runs: the figures say nothing")
	flag.StringVar(&o.only, "only", "", "measure only contestants with a name that this `regexp` matches")
	flag.StringVar(&o.steps, "steps", "", "measure only steps with a name that this `regexp` matches: costs, saving, through, lag, stock, effects, kills")
	flag.StringVar(&o.report, "report", "", "`file` to write the tables to, besides standard output")
	flag.StringVar(&o.data, "data", "", "existing `directory` on the disk that is to be measured (default: that of temporary files)")
	flag.Uint64Var(&o.seed, "seed", 1, "of the order of turns, and of when is killed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "messages:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) error {
	results, err := o.measure(ctx)
	if err != nil {
		return err
	}
	text := results.String()
	fmt.Print(text)
	if o.report == "" || o.only != "" || o.steps != "" || o.quick {
		return nil
	}
	return os.WriteFile(o.report, []byte(text), 0o644)
}

// measure runs everything on a server of its own.
func (o options) measure(ctx context.Context) (r *results, err error) {
	dir, err := os.MkdirTemp(o.data, "idem-messages-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // the server runs as another user
		return nil, err
	}
	s, err := sidebyside.StartServer(ctx, dir, !o.quick)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return o.measureOn(ctx, s)
}

// measureOn runs everything on a server.
func (o options) measureOn(ctx context.Context, s *sidebyside.Server) (*results, error) {
	begin := time.Now()
	r, err := newResults(o)
	if err != nil {
		return nil, err
	}
	r.server = s
	for _, step := range steps {
		if chosen, err := regexp.MatchString(o.steps, step.name); err != nil {
			return nil, err
		} else if !chosen {
			continue
		}
		began := time.Now()
		if err := step.run(ctx, s, r); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
		say("%s took %v", step.name, time.Since(began).Round(time.Millisecond))
	}
	r.took = time.Since(begin).Round(time.Second)
	return r, nil
}

// steps are what is measured, in this order.
var steps = []struct {
	name string
	run  func(context.Context, *sidebyside.Server, *results) error
}{{"costs", costs}, {"saving", saving}, {"through", through}, {"lag", lags}, {"stock", stocks}, {"effects", effects}, {"kills", kills}}

// say tells whoever waits how far it is.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, strings.TrimSuffix(format, "\n")+"\n", args...)
}
