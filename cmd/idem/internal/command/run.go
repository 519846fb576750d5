// Package command implements the commands of idem, one per file, and what they share: the grammar,
// output, and exit codes.
package command

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

const description = "Operates what github.com/idem-go/idem keeps in Postgres. Keys are abridged and stored responses are not " +
	"shown unless you ask. What changes data says what it will do, and asks. " +
	"Exit codes: 0 done, 1 failed, 2 not understood, 3 found something (doctor, verify, stuck, migrate status), 4 no such record, " +
	"5 nothing changed because it was not agreed to, 6 not everything could be checked, 130 interrupted."

// Run parses the arguments, runs the command, and returns the exit code.
func Run(ctx context.Context, w World) int {
	var g grammar
	parser, err := newParser(&g, w)
	if err != nil {
		return finish(ctx, w, err)
	}
	called, err := parser.Parse(w.Args)
	if errors.Is(err, errHelp) {
		return exitDone
	}
	if err != nil {
		return finish(ctx, w, err)
	}
	s := newSession(ctx, w, &g.globals, called.Selected().Name)
	s.command, _, _ = strings.Cut(called.Command(), " <")
	return finish(ctx, w, runFor(ctx, s.patience, func() error {
		defer s.close()
		return s.besides(called.Run(s))
	}))
}

// patience returns how long an interrupted command may take to end, for example to release a lock
// or to receive the answer to a COMMIT. Migrations that have begun get more time.
func (s *session) patience() time.Duration {
	if s.isUnbroken.Load() {
		return time.Minute
	}
	return 5 * time.Second
}

// runFor runs a command. If ctx ends and the command does not end within patience, runFor returns
// without it. The server rolls the transaction back when the process exits and its connection
// closes.
func runFor(ctx context.Context, patience func() time.Duration, command func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- command() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(patience()):
		return context.Cause(ctx)
	}
}

// newParser returns the parser of the grammar. The flag --help is its own flag of the grammar,
// because kong's would take -h.
func newParser(g *grammar, w World) (*kong.Kong, error) {
	return kong.New(g,
		kong.Name("idem"),
		kong.Description(description),
		kong.Writers(w.Stdout, w.Stderr),
		kong.NoDefaultHelp(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}),
		groups,
	)
}
