package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// statusInterval is the time between two status lines if they are not redrawn in place.
const statusInterval = 15 * time.Second

// screen prints text and a status line. On a terminal it redraws the status line in place below the
// text.
type screen struct {
	out      io.Writer
	terminal *os.File // nil if out is not a terminal
	drawn    bool     // the status line is on the terminal
	inLine   bool     // the printed text does not end with a newline
	status   time.Time
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, status: time.Now()}
	if file, ok := out.(*os.File); ok {
		if _, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err == nil {
			s.terminal = file
		}
	}
	return s
}

const eraseLine = "\r\x1b[K"

func (s *screen) print(text string) {
	if text == "" {
		return
	}
	if s.drawn {
		text, s.drawn = eraseLine+text, false
	}
	s.inLine = !strings.HasSuffix(text, "\n")
	io.WriteString(s.out, text)
}

// refresh redraws the status line on a terminal. Elsewhere it prints the line if the last one is
// old.
func (s *screen) refresh(line string) {
	switch {
	case s.terminal != nil && !s.inLine:
		runes := []rune(line)
		io.WriteString(s.out, eraseLine+string(runes[:min(len(runes), s.width()-1)]))
		s.drawn = true
	case s.terminal == nil && time.Since(s.status) >= statusInterval:
		s.printStatus(line)
	}
}

// printStatus prints the status line as a line of its own, unless the screen is a terminal.
func (s *screen) printStatus(line string) {
	if s.terminal == nil {
		s.status = time.Now()
		s.print(line + "\n")
	}
}

func (s *screen) width() int {
	if size, err := unix.IoctlGetWinsize(int(s.terminal.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 1 {
		return int(size.Col)
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 1 {
		return columns
	}
	return 80
}
