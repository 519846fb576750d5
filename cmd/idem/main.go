// Command idem operates the tables of package github.com/idem-go/idem in Postgres. Its commands are
// in internal/command, and docs/cli.md describes them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/idem-go/idem/cmd/idem/internal/command"
)

func main() { os.Exit(run()) }

// run executes the command line and returns the exit code. The first SIGINT or SIGTERM cancels the
// context of the command.
func run() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		name := (<-signals).(syscall.Signal)
		signal.Stop(signals) // the second signal ends the process at once
		cancel(command.Interrupted{Signal: name})
	}()
	return command.Run(ctx, command.World{
		Args: os.Args[1:], Getenv: os.Getenv, Now: time.Now,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		InIsTerminal:  term.IsTerminal(os.Stdin.Fd()),
		OutIsTerminal: term.IsTerminal(os.Stdout.Fd()),
		ErrIsTerminal: term.IsTerminal(os.Stderr.Fd()),
	})
}
