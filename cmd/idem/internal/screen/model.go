package screen

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/idem-go/idem/stats"
)

// model is the state of the screen. At most one reading runs at a time, in its own goroutine, so
// the screen still responds to keys if the server is slow.
type model struct {
	Options
	ctx context.Context

	width, height int
	paused        bool
	interrupted   bool

	now     stats.Stats
	known   bool // at least one reading succeeded
	err     error
	reading bool
	took    time.Duration
	history []stats.Stats // oldest first
}

// remembered is the maximum length of history.
const remembered = 400

func newModel(ctx context.Context, o Options) model {
	return model{Options: o, ctx: ctx, width: 80, height: 24, reading: true}
}

// Messages that Update receives: a finished reading, and the time for the next one.
type (
	read struct {
		stats stats.Stats
		err   error
		took  time.Duration
	}
	tick struct{}
)

// Init starts the first reading.
func (m model) Init() tea.Cmd { return m.read() }

func (m model) read() tea.Cmd {
	return func() tea.Msg {
		begin := time.Now()
		v, err := m.Read(m.ctx)
		return read{v, err, time.Since(begin)}
	}
}

func (m model) wait() tea.Cmd { return tea.Tick(m.Every, func(time.Time) tea.Msg { return tick{} }) }

// Update handles a message and returns the next command. A tick during a reading or a pause only
// waits for the next tick.
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

// take stores the outcome of a reading. After a failure the screen still shows the last good
// reading.
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

// press handles a key.
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
