// Package screen shows the figures live.
package screen

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/idem-go/idem/stats"
)

// Options say what is shown, and where.
type Options struct {
	Where string // the address, for the first line
	Every time.Duration
	Read  func(context.Context) (stats.Stats, error)

	In     io.Reader
	Out    io.Writer
	Env    []string
	Colour bool
}

// ErrInterrupted is the end by Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// Run shows the screen until the person leaves it or ctx ends.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a reading under way
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
