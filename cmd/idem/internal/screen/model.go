package screen

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/idem-go/idem/stats"
)

// model is what the screen knows. Reading runs beside it, one at a time, so that a slow server does not make it deaf.
type model struct {
	Options
	ctx context.Context

	width, height int
	paused        bool
	interrupted   bool

	now     stats.Stats
	known   bool // there is a reading
	err     error
	reading bool
	took    time.Duration
	history []stats.Stats // the youngest last
}

// remembered is how many readings the curves go back, at most.
const remembered = 400

func newModel(ctx context.Context, o Options) model {
	return model{Options: o, ctx: ctx, width: 80, height: 24, reading: true}
}

// Messages to the model.
type (
	read struct {
		stats stats.Stats
		err   error
		took  time.Duration
	}
	tick struct{}
)

// Init begins with a reading.
func (m model) Init() tea.Cmd { return m.read() }

func (m model) read() tea.Cmd {
	return func() tea.Msg {
		begin := time.Now()
		v, err := m.Read(m.ctx)
		return read{v, err, time.Since(begin)}
	}
}

func (m model) wait() tea.Cmd { return tea.Tick(m.Every, func(time.Time) tea.Msg { return tick{} }) }

// Update takes in what has happened.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case read:
		return m.take(msg), m.wait()
	case tick:
		if m.paused || m.reading {
			return m, m.wait()
		}
		m.reading = true
		return m, m.read()
	case tea.KeyPressMsg:
		return m.press(msg.String())
	}
	return m, nil
}

func (m model) take(msg read) model {
	m.reading, m.took, m.err = false, msg.took, msg.err
	if msg.err != nil {
		return m
	}
	m.now, m.known = msg.stats, true
	m.history = append(m.history, msg.stats)
	if len(m.history) > remembered {
		m.history = append([]stats.Stats(nil), m.history[len(m.history)-remembered/2:]...)
	}
	return m
}

func (m model) press(key string) (tea.Model, tea.Cmd) {
	switch key {
	case "q", "esc":
		return m, tea.Quit
	case "ctrl+c":
		m.interrupted = true
		return m, tea.Quit
	case "p", "space":
		m.paused = !m.paused
	}
	return m, nil
}
