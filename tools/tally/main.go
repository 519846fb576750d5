// Tally runs "go test -json" in modules, some of them at a time, and says what it comes to.
//
//	tally [-allow file] [-together n] [-unraced modules] [-v] module... -- go test -json [flag]... [package]...
//
// It shows each package as it ends, all that a failed test had to say, every skipped test with its reason, and now and then
// which tests are running. It ends with a line "N passed, N failed, N skipped", and with exit code 1 unless everything passed.
// With a file of allowed skips, a skipped test counts as a failure, unless the file has a line "package.Test: why" for it.
package main

import (
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
	allow := flag.String("allow", "", "`file` of the tests that may be skipped, and no other ones")
	together := flag.Int("together", 1, "how `many` modules at a time")
	unraced := flag.String("unraced", "", "`modules`, with a space between them, whose command has no -race")
	verbose := flag.Bool("v", false, "show what every test says")
	flag.Parse()
	// A person who interrupts tally interrupts the commands as well, and wants to hear what came of them.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	ok, err := tally(os.Stdout, *allow, *verbose, *together, strings.Fields(*unraced), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// lookEvery is how often it is told which tests are running, if nothing else is.
const lookEvery = 15 * time.Second

func tally(out io.Writer, allow string, verbose bool, together int, unraced, args []string) (ok bool, err error) {
	dashes := slices.Index(args, "--")
	if dashes < 1 || dashes == len(args)-1 || together < 1 {
		return false, errors.New("want modules, and a command behind --")
	}
	c := newCount(out)
	c.verbose = verbose
	if c.allowed, err = readAllowed(allow); err != nil {
		return false, err
	}
	watch := time.NewTicker(lookEvery)
	defer watch.Stop()
	go func() {
		for range watch.C {
			c.showRunning(lookEvery)
		}
	}()
	runAll(c, together, unraced, args[:dashes], args[dashes+1:])
	return c.sum(), nil
}
