package idemgrpc_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/idem-go/idem/idemgrpc"
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
		s.then = func(context.Context, pgx.Tx, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			fmt.Println("in the handler")
			select {}
		}
	}
	keyed, err := idemgrpc.New(pool, config())
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(keyed.Unary()))
	pb.RegisterTestServiceServer(server, s)
	fmt.Println(listener.Addr())
	panic(server.Serve(listener))
}

// victim is a server in a separate process.
type victim struct {
	*exec.Cmd
	address string
	lines   *bufio.Scanner
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
	v.address = strings.TrimSpace(v.lines.Text())
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
		inShop(t, test.name, func(t *testing.T, s *shop) {
			proxy := pgtest.Proxy(t, s.pool.Config().ConnString())
			v := newVictim(t, proxy.DSN(), test.env...)
			committed := proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Freeze)
			client := dial(t, v.address)
			answer := make(chan error, 1)
			go func() {
				_, err := client.UnaryCall(key(t.Context(), "k"), order("teapot"))
				answer <- err
			}()
			if test.behind {
				<-committed.Fired()
			} else if !v.lines.Scan() {
				t.Fatal("the handler was not called")
			}
			if err := v.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := <-answer; err == nil {
				t.Fatal("the killed server has answered")
			}
			again := s.serve(t, config(), idemgrpc.ClientInterceptor(idemgrpc.ClientConfig{MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, MaxAttempts: 1000, RetryBurst: 1000}))
			var header metadata.MD
			reply, err := again.UnaryCall(idemgrpc.WithKey(t.Context(), "k"), order("teapot"), grpc.Header(&header))
			if err != nil || !strings.HasPrefix(reply.GetUsername(), "order ") || isReplay(header) != test.behind {
				t.Errorf("%v, %v, %v", reply, header, err)
			}
			s.wantOrders(t, 1)
		})
	}
}
