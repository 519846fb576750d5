// Command torture tests the promises of idem under faults. Worker processes make calls while faults
// are injected. Afterwards a checker, which shares no code with the library, decides whether the
// answers of the calls were true.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/idem-go/idem/lab/torture/report"
	"github.com/idem-go/idem/lab/torture/workload"
)

const usage = `torture [run] [flags]     torture the library, and check the results
torture mutants [flags]   check that broken libraries are detected
torture worker            started by run; not for people

It exits with 1 if a promise was not kept, with 2 if the run itself did not work, or a leg of it.

flags:`

func main() {
	err := command(os.Args[1:])
	code := exitCode(err)
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "torture: interrupted")
	case code > 1:
		fmt.Fprintln(os.Stderr, "torture:", err)
	}
	os.Exit(code)
}

func exitCode(err error) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, report.ErrNotKept):
		return 1
	}
	return 2
}

func command(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	name := "run"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	switch name {
	case "run":
		return run(ctx, args)
	case "mutants":
		return mutants(ctx, args)
	case "worker":
		stop() // a worker handles signals itself
		return workload.Work(os.Stdin)
	}
	return fmt.Errorf("no command %q; see torture -help", name)
}
