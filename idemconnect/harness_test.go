package idemconnect_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/idem-go/idem/idemconnect"
	rpc "github.com/idem-go/idem/idemconnect/internal/grpc_testingconnect"
	"github.com/idem-go/idem/lab/pgtest"
)

// shop is a service with orders.
type shop struct {
	rpc.UnimplementedTestServiceHandler
	pool *pgxpool.Pool
	// then runs in the handler after its write; may be nil.
	then func(ctx context.Context, tx pgx.Tx, req *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error)
}

func newShop(t testing.TB) *shop {
	t.Helper()
	s := &shop{pool: pgtest.New(t)}
	if _, err := s.pool.Exec(t.Context(), `CREATE TABLE orders (id serial, item text)`); err != nil {
		t.Fatal(err)
	}
	return s
}

// inShop runs a parallel subtest with a shop of its own.
func inShop(t *testing.T, name string, test func(*testing.T, *shop)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t, newShop(t))
	})
}

func (s *shop) UnaryCall(ctx context.Context, req *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error) {
	tx := idemconnect.Tx(ctx)
	var id int
	if err := tx.QueryRow(ctx, `INSERT INTO orders (item) VALUES ($1) RETURNING id`, string(req.Msg.GetPayload().GetBody())).Scan(&id); err != nil {
		return nil, err
	}
	if s.then != nil {
		return s.then(ctx, tx, req)
	}
	return connect.NewResponse(&pb.SimpleResponse{Username: fmt.Sprintf("order %d", id)}), nil
}

func (s *shop) EmptyCall(context.Context, *connect.Request[pb.Empty]) (*connect.Response[pb.Empty], error) {
	return connect.NewResponse(&pb.Empty{}), nil
}

func (s *shop) StreamingOutputCall(context.Context, *connect.Request[pb.StreamingOutputCallRequest], *connect.ServerStream[pb.StreamingOutputCallResponse]) error {
	return nil
}

// config is a configuration that takes the caller from a header.
func config() idemconnect.Config {
	return idemconnect.Config{
		Scope: func(_ context.Context, req connect.AnyRequest) (string, error) {
			return fmt.Sprint(req.Header().Get("Caller"), req.Spec().Procedure), nil
		},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// protocols lists the client options for each protocol.
var protocols = map[string][]connect.ClientOption{
	"connect":       nil,
	"connect, JSON": {connect.WithProtoJSON()},
	"grpc":          {connect.WithGRPC()},
	"grpc, JSON":    {connect.WithGRPC(), connect.WithProtoJSON()},
	"grpc-web":      {connect.WithGRPCWeb()},
}

// serve returns the address of a server of the shop. The interceptors in front run before the one
// under test.
func (s *shop) serve(t testing.TB, config idemconnect.Config, front ...connect.Interceptor) string {
	t.Helper()
	keyed, err := idemconnect.New(s.pool, config)
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, handlerOf(s, append(front, keyed)...))
}

func handlerOf(s rpc.TestServiceHandler, interceptors ...connect.Interceptor) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(rpc.NewTestServiceHandler(s, connect.WithInterceptors(interceptors...)))
	return mux
}

// both enables HTTP/1.1 and HTTP/2 without TLS. gRPC needs HTTP/2.
func both() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

func listen(t testing.TB, handler http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = both()
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// dial returns a client. A gRPC client uses HTTP/2.
func dial(t testing.TB, url string, options ...connect.ClientOption) rpc.TestServiceClient {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return rpc.NewTestServiceClient(&http.Client{Transport: transport}, url, options...)
}

// dialHTTP1 returns a client that makes one call at a time per connection.
func dialHTTP1(t testing.TB, url string, options ...connect.ClientOption) rpc.TestServiceClient {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return rpc.NewTestServiceClient(&http.Client{Transport: transport}, url, options...)
}

// order makes a call with a key, or without one if key is empty. More are further headers.
func order(item, key string, more ...string) *connect.Request[pb.SimpleRequest] {
	req := connect.NewRequest(&pb.SimpleRequest{Payload: &pb.Payload{Body: []byte(item)}})
	if key != "" {
		req.Header().Set(idemconnect.KeyHeader, key)
	}
	for i := 0; i+1 < len(more); i += 2 {
		req.Header().Add(more[i], more[i+1])
	}
	return req
}

func (s *shop) wantOrders(t testing.TB, want int) {
	t.Helper()
	var got int
	if err := s.pool.QueryRow(context.Background(), `SELECT count(*) FROM orders`).Scan(&got); err != nil || got != want {
		t.Errorf("%d orders, %v; want %d", got, err, want)
	}
}
