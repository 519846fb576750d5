package process

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// TestMain lets the test binary be a server, whose answer is its process id.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "server" {
		listener, err := net.Listen("tcp", os.Args[3])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("listening on http://" + listener.Addr().String())
		http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, os.Getpid()) }))
	}
	os.Exit(m.Run())
}

func TestProcessThatIsKilledIsStartedAgainAtItsAddress(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	k, err := Keep(t.Context(), []string{program, "server"}, nil, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	first := pidAt(t, k.URL)
	k.Kill()
	if second := pidAt(t, k.URL); second == first {
		t.Errorf("process %d still answers", first)
	}
	k.Stop()
	if response, err := http.Get(k.URL); err == nil {
		response.Body.Close()
		t.Error("a process that was stopped for good is there")
	}
}

func TestCommandThatDoesNotListenIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := Keep(t.Context(), []string{"true"}, nil, os.Stderr); err == nil {
		t.Error("no error")
	}
}

// pidAt returns the process that answers, as soon as one does.
func pidAt(t *testing.T, url string) (pid int) {
	t.Helper()
	for {
		response, err := http.Get(url)
		if err == nil {
			defer response.Body.Close()
			if _, err := fmt.Fscan(response.Body, &pid); err != nil {
				t.Fatal(err)
			}
			return pid
		}
		select {
		case <-t.Context().Done():
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
