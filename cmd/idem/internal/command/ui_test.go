package command_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/command"
)

// served is a running idem ui. It stops at the end of the test.
type served struct {
	URL, Token        string
	ReadOnly, Private bool
	stop              func() output
}

// serve starts idem ui.
func (d *harness) serve(env map[string]string, args ...string) served {
	d.t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	out, in := io.Pipe()
	ended := make(chan output, 1)
	go func() {
		got := d.call(ctx, func(w *command.World) {
			w.Stdout = in
			getenv := w.Getenv
			w.Getenv = func(name string) string {
				if value, ok := env[name]; ok {
					return value
				}
				return getenv(name)
			}
		}, append([]string{"ui", "--json", "--listen", "127.0.0.1:0"}, args...)...)
		in.Close()
		ended <- got
	}()
	stop := func() output {
		cancel(command.Interrupted{Signal: syscall.SIGINT})
		got := <-ended
		ended <- got
		return got
	}
	d.t.Cleanup(func() { stop() })
	var shown struct {
		URL, Token string
		ReadOnly   bool `json:"read_only"`
		Private    bool
	}
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&shown); err != nil {
		d.t.Fatal(err, <-ended)
	}
	return served{shown.URL, shown.Token, shown.ReadOnly, shown.Private, stop}
}

func (s served) get(t *testing.T, host string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(text)
}

func TestUI_OnLoopbackReadsUntilTheCommandEnds(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	s := d.serve(nil)
	if !strings.HasPrefix(s.URL, "http://127.0.0.1:") || s.Token != "" || !s.ReadOnly || s.Private {
		t.Errorf("%+v", s)
	}
	if code, text := s.get(t, ""); code != 200 || !strings.Contains(text, "Read-only") {
		t.Errorf("%d %s", code, text)
	}
	if code, _ := s.get(t, "evil.example"); code != http.StatusMisdirectedRequest {
		t.Errorf("a foreign host name got status %d", code)
	}
	s.stop().want(t, 130, "interrupted")
	if _, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.URL, "http://"), "/")); err == nil {
		t.Error("the command still runs")
	}
}

func TestUI_WriteGeneratesAStrongToken(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	s := d.serve(nil, "--write", "--allow-host", "idem.example")
	if len(s.Token) < 32 || s.ReadOnly || s.Private {
		t.Errorf("%+v", s)
	}
	if code, text := s.get(t, "idem.example"); code != 200 || !strings.Contains(text, "Log in to act") || strings.Contains(text, s.Token) {
		t.Errorf("%d %s", code, text)
	}
	if s := d.serve(map[string]string{"IDEM_UI_TOKEN": "the token of a team, which is long"}, "--write"); s.Token != "" || s.ReadOnly {
		t.Errorf("%+v", s)
	}
	d.with(map[string]string{"IDEM_UI_TOKEN": "a token of thirty-one character"}, "ui", "--write", "--listen", "127.0.0.1:0").want(t, 2, "could be guessed")
}

func TestUI_BeyondLoopbackIsPrivate(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	s := d.serve(nil, "--listen", "0.0.0.0:0")
	if s.Token == "" || !s.Private || !s.ReadOnly {
		t.Errorf("%+v", s)
	}
	_, port, _ := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(s.URL, "http://"), "/"))
	s.URL = "http://127.0.0.1:" + port + "/"
	if code, text := s.get(t, "any.example"); code != 401 || strings.Contains(text, "Parked") {
		t.Errorf("%d %s", code, text)
	}
}
