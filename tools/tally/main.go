// Tally runs "go test -json" in several modules and prints a readable summary.
//
//	tally [-allow file] [-together n] [-unraced modules] module... --
//		go test -json [flag]... [package]...
//
// A module is given by its directory. The form directory=package,package replaces the packages of
// the command for this module.
//
// While tests run, tally prints a line for each failure and for each module. The summary shows
// the failures with their output, the skipped tests grouped by reason, and the slowest tests and
// modules. Its last line is always "N passed, N failed, N skipped".
//
// The following also count as failures: a test that does not end because of a panic or a timeout, a
// package that does not build, a package that fails outside of its tests, and a run without any
// test. With -allow, a skipped test counts as failed unless the file has a line "package.Test: why"
// for this test.
//
// The exit code is 0 if nothing failed, 1 if something failed, 2 for a usage error, and 130 after
// SIGINT, SIGTERM, SIGHUP or SIGQUIT. Each of these signals interrupts all tests. After three
// seconds, tally kills the tests that are still running.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	signals := make(chan os.Signal, 1)
	// Tally receives SIGPIPE if the reader of its output has exited, as in "tally | head". The
	// tests are then interrupted too.
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	code, err := tally(os.Stdout, os.Args[1:], signals)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
	}
	os.Exit(code)
}

// tally runs the tests of the modules in args until all have ended or a signal arrives. It returns
// the exit code.
func tally(out io.Writer, args []string, signals <-chan os.Signal) (int, error) {
	flags := flag.NewFlagSet("tally", flag.ContinueOnError)
	allow := flags.String("allow", "", "`file` of the tests that may be skipped")
	together := flags.Int("together", 1, "`number` of modules to test at a time")
	unraced := flags.String("unraced", "", "`modules`, spelled as in the arguments and separated by spaces, to test without -race")
	if err := flags.Parse(args); err != nil {
		return 2, nil // the flag package has printed the error
	}
	args = flags.Args()
	dashes := slices.Index(args, "--")
	if dashes < 1 || dashes == len(args)-1 || *together < 1 {
		return 2, errors.New("want modules, and a command after --")
	}
	command := args[dashes+1:]
	allowed, err := readAllowed(*allow)
	if err != nil {
		return 2, err
	}
	modules := make([]*module, dashes)
	for i, arg := range args[:dashes] {
		modules[i] = newModule(arg, command, strings.Fields(*unraced))
	}

	r := &results{
		out:     out,
		modules: modules,
		allowed: allowed,
		began:   time.Now(),
		open:    map[string]*test{},
		skips:   map[string][]string{},
	}
	// Stop collecting results before the tests are interrupted, because a test that fails after the
	// interrupt does not count as a failure.
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	go func() {
		<-signals
		r.interrupt()
		interrupt()
	}()
	runAll(ctx, r, *together)
	return r.summarize(), nil
}
