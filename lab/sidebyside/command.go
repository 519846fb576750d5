package sidebyside

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/pgserver/child"
)

// Options are those of a benchmark's command line.
type Options struct {
	Quick  bool
	Only   string // a pattern for the names of contestants
	Steps  string // and for those of steps
	Report string
	Data   string
	Seed   uint64
}

// Step is a part of a benchmark.
type Step[S, R any] struct {
	Name string
	Run  func(ctx context.Context, server S, results R) error
}

// Main is what a benchmark's command does, which has that name and those steps: it measures on a server of its own, prints the
// results, and writes them to the report if they are whole.
func Main[S, R any](name string, steps []Step[S, R], measure func(context.Context, *Server, Options) (fmt.Stringer, error)) {
	var names []string
	for _, step := range steps {
		names = append(names, step.Name)
	}
	var o Options
	flag.BoolVar(&o.Quick, "quick", false, "as little as shows that it runs: the figures say nothing")
	flag.StringVar(&o.Only, "only", "", "measure only contestants with a name that this `regexp` matches")
	flag.StringVar(&o.Steps, "steps", "", "measure only steps with a name that this `regexp` matches: "+strings.Join(names, ", "))
	flag.StringVar(&o.Report, "report", "", "`file` to write the tables to, besides standard output")
	flag.StringVar(&o.Data, "data", "", "existing `directory` on the disk that is to be measured (default: that of temporary files)")
	flag.Uint64Var(&o.Seed, "seed", 1, "of all that is left to chance: the order of turns, when something is killed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.report(ctx, measure); err != nil {
		Fail(name, err)
	}
}

// Fail ends the process of a benchmark with an error.
func Fail(name string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	os.Exit(1)
}

func (o Options) report(ctx context.Context, measure func(context.Context, *Server, Options) (fmt.Stringer, error)) (err error) {
	s, err := StartServer(ctx, o.Data, !o.Quick)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	results, err := measure(ctx, s, o)
	if err != nil {
		return err
	}
	text := results.String()
	fmt.Print(text)
	if o.Report == "" || o.Only != "" || o.Steps != "" || o.Quick {
		return nil
	}
	return os.WriteFile(o.Report, []byte(text), 0o644)
}

// Take takes the steps that are wanted, and tells how long all of them took.
func Take[S, R any](ctx context.Context, o Options, steps []Step[S, R], server S, results R) (took time.Duration, err error) {
	wanted, err := regexp.Compile(o.Steps)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	for _, step := range steps {
		if !wanted.MatchString(step.Name) {
			continue
		}
		began := time.Now()
		if err := step.Run(ctx, server, results); err != nil {
			return 0, fmt.Errorf("%s: %w", step.Name, err)
		}
		Say("%s took %v", step.Name, time.Since(began).Round(time.Millisecond))
	}
	return time.Since(begun).Round(time.Second), nil
}

// Say tells whoever waits how far it is.
func Say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, strings.TrimSuffix(format, "\n")+"\n", args...)
}

// Again runs this program again, as a process that may be killed, with a role in this variable. It ends with this process.
func Again(variable string, role any) (*child.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(role)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	cmd.Stderr = os.Stderr
	return child.Start(cmd, syscall.SIGKILL)
}
