package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/sidebyside"
)

// sampled is in which programs a course spends its processor time.
type sampled struct {
	course string
	each   float64            // microseconds a call, of server and client together
	shares map[string]float64 // of that, by program
	first  function           // of PostgreSQL's, that with the most
}

// function is one with its share of the program.
type function struct {
	name  string
	share float64
}

// The programs, in the order of the report.
const (
	serverKernel   = "server: the kernel, above all the network and the log"
	serverPostgres = "server: PostgreSQL"
	serverLibrary  = "server: libraries"
	clientKernel   = "client: the kernel, above all the network"
	clientGo       = "client: Go's runtime and library"
	clientPgx      = "client: pgx"
	clientIdem     = "client: idem"
	clientBench    = "client: this program"
)

var programNames = []string{serverKernel, serverPostgres, serverLibrary, clientKernel, clientGo, clientPgx, clientIdem, clientBench}

// withNames makes go run keep the names of functions, by which the client's packages are told apart.
const withNames = "-ldflags='-s=0 -w=0'"

var (
	errNoPerf  = errors.New("perf cannot run here")
	errNoNames = errors.New("this program has no names of functions: go run leaves them out without " + withNames)
)

// programs samples first runs of one INSERT.
func programs(ctx context.Context, s *sidebyside.Server, r *results) error {
	for _, c := range named(writes, r.only) {
		if c.name != contestant.NamePlain && c.name != contestant.NameIdem {
			continue
		}
		one, err := sample(ctx, s, c, r.plan)
		if errors.Is(err, errNoPerf) || errors.Is(err, errNoNames) {
			r.leftOut("in which programs the time is spent: " + err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		r.samples = append(r.samples, one)
	}
	return nil
}

func sample(ctx context.Context, s *sidebyside.Server, c course, p plan) (one sampled, err error) {
	perf, err := optional.Find("perf")
	if err != nil {
		return one, fmt.Errorf("%w: %w", errNoPerf, err)
	}
	st, source, err := openWarm(ctx, s, c, p)
	if err != nil {
		return one, err
	}
	defer st.pool.Close()
	calm, err := st.take(ctx, source.Template, source.Take(p.sampled/4)) // to sample takes time, too
	if err != nil {
		return one, err
	}
	dir, err := os.MkdirTemp("", "idem-profile-")
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	data := filepath.Join(dir, "perf.data")
	stop, err := record(ctx, perf, data, st)
	if err != nil {
		return one, err
	}
	_, err = st.take(ctx, source.Template, source.Take(p.sampled))
	if err := errors.Join(err, stop()); err != nil {
		return one, err
	}
	text, err := exec.CommandContext(ctx, perf, "report", "--input", data, "--stdio", "--quiet", "--field-separator", "\t",
		"--sort", "comm,dso,symbol").Output()
	if err != nil {
		return one, fmt.Errorf("perf report: %w", err)
	}
	one, err = shared(string(text))
	one.course, one.each = c.name, calm.client+calm.server
	return one, err
}

// record begins to sample this process and those of the server that work for the stand. What it returns ends that.
func record(ctx context.Context, perf, data string, s *stand) (stop func() error, err error) {
	pids, err := s.clock.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	list := strconv.Itoa(os.Getpid())
	for _, pid := range pids {
		list += "," + strconv.Itoa(pid)
	}
	begin, told, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ready, begun, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, begin.Close(), told.Close())
	}
	defer ready.Close()
	cmd := exec.Command(perf, "record", "--quiet", "--event", "cpu-clock", "--freq", "4999", "--pid", list, "--output", data,
		"--delay", "-1", "--control", "fd:3,4")
	cmd.ExtraFiles = []*os.File{begin, begun}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	err = cmd.Start()
	begin.Close()
	begun.Close()
	if err != nil {
		return nil, errors.Join(err, told.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	_, _ = told.WriteString("enable\n")
	if _, err := ready.Read(make([]byte, 16)); err != nil { // it has ended without having begun
		<-ended
		told.Close()
		return nil, fmt.Errorf("%w: %s", errNoPerf, strings.TrimSpace(said.String()))
	}
	return func() error {
		defer told.Close() // where nobody holds that, it stops
		_ = cmd.Process.Signal(syscall.SIGINT)
		err := <-ended
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGINT { // which is how it ends
			return nil
		}
		return err
	}, nil
}

// shared sums up a report of perf.
func shared(text string) (sampled, error) {
	s, nameless := sampled{shares: map[string]float64{}}, 0.0
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(cells) < 4 {
			continue
		}
		percent, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(cells[0]), "%"), 64)
		if err != nil {
			continue // a heading
		}
		program := programOf(strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2]), symbolOf(cells[3]))
		s.shares[program] += percent / 100
		if program == clientGo && strings.HasPrefix(symbolOf(cells[3]), "0x") {
			nameless += percent / 100
		}
		if name := symbolOf(cells[3]); program == serverPostgres && percent/100 > s.first.share && !strings.HasPrefix(name, "0x") {
			s.first = function{name, percent / 100}
		}
	}
	if len(s.shares) == 0 {
		return s, errors.New("perf has seen nothing")
	}
	if nameless > s.shares[clientGo]/2 {
		return s, errNoNames
	}
	if all := s.shares[serverPostgres]; all > 0 {
		s.first.share /= all
	}
	return s, nil
}

// level is where a symbol runs, as perf shows it, and what may stand behind one.
var level = regexp.MustCompile(`^\[.\] |\s+-\s.*$`)

func symbolOf(cell string) string {
	return strings.TrimSpace(level.ReplaceAllString(strings.TrimSpace(cell), ""))
}

func programOf(comm, dso, symbol string) string {
	kernel := strings.HasPrefix(dso, "[kernel") || strings.HasPrefix(dso, "[guest")
	if comm == "postgres" {
		switch {
		case kernel:
			return serverKernel
		case dso == "postgres":
			return serverPostgres
		}
		return serverLibrary
	}
	in := func(modules ...string) bool {
		return slices.ContainsFunc(modules, func(m string) bool { return strings.HasPrefix(symbol, m) })
	}
	switch {
	case kernel:
		return clientKernel
	case in("github.com/idem-go/idem/lab/bench", "main."):
		return clientBench
	case in("github.com/idem-go/idem"):
		return clientIdem
	case in("github.com/jackc/"):
		return clientPgx
	}
	return clientGo
}
