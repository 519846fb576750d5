// Package command implements the commands of the program idem. Each command is a struct whose
// fields are the flags of the command. Commands share parsing, the database connection, output and
// exit codes.
//
// A command prints only its result to standard output: as text, or as JSON with --json. Questions,
// notes and errors go to standard error. The exit code says how the command ended.
package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/idem-go/idem/cmd/idem/internal/page"
)

const description = "Operates the tables of github.com/idem-go/idem in Postgres. Keys are abridged and stored responses are hidden, " +
	"unless you ask for them. A command that changes data says what it will do, and asks. " +
	"Exit codes: 0 done, 1 failed, 2 wrong usage, 3 found something (doctor, verify, stuck, migrate status), 4 no such record, " +
	"5 nothing changed because it was not confirmed, 6 not everything could be checked, 130 interrupted."

// Run parses the command line w.Args, executes the command, and returns the exit code.
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
	w.Stdin = bufio.NewReader(w.Stdin) // shared by readers of a line and of the rest
	s := &session{World: w, ctx: ctx, globals: &g.globals, name: called.Selected().Name, page: page.New(w.Stdout, w.colors())}
	s.command, _, _ = strings.Cut(called.Command(), " <")
	return finish(ctx, w, runWithGrace(ctx, s.gracePeriod, func() error {
		defer s.close()
		return s.checkStandby(called.Run(s))
	}))
}

// gracePeriod returns how long an interrupted command may take to end. In this time the command can
// release a lock, wait for the answer to a COMMIT, or finish a migration.
func (s *session) gracePeriod() time.Duration {
	if s.isUninterruptible.Load() {
		return time.Minute
	}
	return 5 * time.Second
}

// runWithGrace calls the function command and returns its error. When an interrupt ends ctx,
// runWithGrace waits for the function only for the grace period, and then returns the cause of ctx.
// The program then exits although the function still runs, and Postgres rolls back its transaction.
func runWithGrace(ctx context.Context, gracePeriod func() time.Duration, command func() error) error {
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
	case <-time.After(gracePeriod()):
		return context.Cause(ctx)
	}
}

// newParser returns the parser of the command line. It turns off kong's own help flag, which
// helpFlag replaces.
func newParser(g *grammar, w World) (*kong.Kong, error) {
	return kong.New(g,
		kong.Name("idem"),
		kong.Description(description),
		kong.Writers(w.Stdout, w.Stderr),
		kong.NoDefaultHelp(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}),
		groups,
		kong.PostBuild(addDetails),
	)
}

// World has everything outside the program that a command uses, apart from the database. Tests pass
// a World of their own.
type World struct {
	Args   []string // the command line without the name of the program
	Getenv func(string) string
	Now    func() time.Time

	Stdin          io.Reader
	Stdout, Stderr io.Writer

	InIsTerminal, OutIsTerminal, ErrIsTerminal bool
}

// Interrupted is the error with which a signal cancels the context of a command (context.Cause).
type Interrupted struct{ Signal syscall.Signal }

func (i Interrupted) Error() string {
	if i.Signal == syscall.SIGINT {
		return "interrupted"
	}
	return fmt.Sprintf("interrupted: %v", i.Signal)
}

// colors reports whether output for a person may contain colors.
func (w World) colors() bool {
	return w.OutIsTerminal && w.Getenv("NO_COLOR") == "" && w.Getenv("TERM") != "dumb"
}
