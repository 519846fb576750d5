// Package screen shows the figures of package stats in a terminal and refreshes them.
package screen

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/idem-go/idem/stats"
)

// Options configure Run.
type Options struct {
	Where string // the address, for the first line
	Every time.Duration
	Read  func(context.Context) (stats.Stats, error)

	In     io.Reader
	Out    io.Writer
	Env    []string
	Colour bool
}

// ErrInterrupted is returned by Run after Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// Run shows the screen until the user quits or ctx ends.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a reading that is still running
	program := tea.NewProgram(newModel(ctx, o), tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out),
		tea.WithoutSignalHandler(), tea.WithEnvironment(o.Env))
	last, err := program.Run()
	if err != nil {
		return err
	}
	if last.(model).interrupted {
		return ErrInterrupted
	}
	return nil
}
