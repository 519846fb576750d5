// Package command implements the commands of the program idem. Each command is a struct with its
// flags, and has a file of its own. The other files have what the commands share: parsing, the
// connection, output and exit codes.
package command

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

const description = "Operates the tables of github.com/idem-go/idem in Postgres. Keys are abridged and stored responses are hidden, " +
	"unless you ask for them. A command that changes data says what it will do, and asks. " +
	"Exit codes: 0 done, 1 failed, 2 wrong usage, 3 found something (doctor, verify, stuck, migrate status), 4 no such record, " +
	"5 nothing changed because it was not confirmed, 6 not everything could be checked, 130 interrupted."

// Run executes the command that w.Args name, and returns the exit code.
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

// patience returns how long an interrupted command may take to end. It may release a lock, wait for
// the answer to a COMMIT, or finish the migrations that it has begun.
func (s *session) patience() time.Duration {
	if s.isUnbroken.Load() {
		return time.Minute
	}
	return 5 * time.Second
}

// runFor runs command. After an interrupt it waits for command up to patience, and then returns the
// cause of ctx while command still runs. The program then exits, and the server rolls back when the
// connection is closed.
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
