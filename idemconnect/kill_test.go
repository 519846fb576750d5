package idemconnect_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/idem-go/idem/idemconnect"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// The test binary also runs as the server that is killed.
const (
	victimOf    = "IDEM_TEST_VICTIM_OF"
	victimStays = "IDEM_TEST_VICTIM_STAYS" // wait in the handler
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(victimOf); dsn != "" {
		beVictim(dsn)
	}
	os.Exit(m.Run())
}

func beVictim(dsn string) {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		panic(err)
	}
	s := &shop{pool: pool}
	if os.Getenv(victimStays) != "" {
		s.then = func(context.Context, pgx.Tx, *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error) {
			fmt.Println("in the handler")
			select {}
		}
	}
	keyed, err := idemconnect.New(pool, config())
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := &http.Server{Handler: handlerOf(s, keyed), Protocols: both()}
	fmt.Println("http://" + listener.Addr().String())
	panic(server.Serve(listener))
}

// victim is a server in a separate process.
type victim struct {
	*exec.Cmd
	url   string
	lines *bufio.Scanner
}

func newVictim(t *testing.T, dsn string, env ...string) *victim {
	t.Helper()
	v := &victim{Cmd: exec.Command(os.Args[0])}
	v.Env = append(append(os.Environ(), victimOf+"="+dsn), env...)
	v.Stderr = os.Stderr
	out, err := v.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = v.Process.Kill(), v.Wait() })
	v.lines = bufio.NewScanner(out)
	if !v.lines.Scan() {
		t.Fatal("the server has not begun")
	}
	v.url = strings.TrimSpace(v.lines.Text())
	return v
}

// A server is killed in its handler, or after a COMMIT whose answer is lost. The client retries on
// another server.
func TestServer_KilledServerLeavesTheRecord(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		env    []string
		behind bool // killed after the COMMIT
	}{{"in the handler", []string{victimStays + "=1"}, false}, {"behind COMMIT", nil, true}} {
		for protocol, options := range protocols {
			t.Run(test.name+" "+protocol, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				proxy := pgtest.Proxy(t, s.pool.Config().ConnString())
				v := newVictim(t, proxy.DSN(), test.env...)
				committed := proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Freeze)
				client := dial(t, v.url, options...)
				answer := make(chan error, 1)
				go func() {
					_, err := client.UnaryCall(t.Context(), order("teapot", "k"))
					answer <- err
				}()
				if test.behind {
					<-committed.Fired()
				} else if !v.lines.Scan() {
					t.Error("the handler was not called")
					return
				}
				if err := v.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				if err := <-answer; err == nil {
					t.Fatal("the killed server has answered")
				}
				again := dial(t, s.serve(t, config()), append([]connect.ClientOption{connect.WithInterceptors(idemconnect.ClientInterceptor(idemconnect.ClientConfig{
					MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, MaxAttempts: 1000, RetryBurst: 1000,
				}))}, options...)...)
				reply, err := again.UnaryCall(idemconnect.WithKey(t.Context(), "k"), order("teapot", ""))
				if err != nil || !strings.HasPrefix(reply.Msg.GetUsername(), "order ") || isReplay(reply.Header()) != test.behind {
					t.Errorf("%v, %v", reply, err)
				}
				s.wantOrders(t, 1)
			})
		}
	}
}
