package idemgrpc_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/lab/pgtest"
)

// shop is a service with orders.
type shop struct {
	pb.UnimplementedTestServiceServer
	pool *pgxpool.Pool
	// then runs in the handler after its write; may be nil.
	then func(ctx context.Context, tx pgx.Tx, req *pb.SimpleRequest) (*pb.SimpleResponse, error)
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

func (s *shop) UnaryCall(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	tx := idemgrpc.Tx(ctx)
	var id int
	if err := tx.QueryRow(ctx, `INSERT INTO orders (item) VALUES ($1) RETURNING id`, string(req.GetPayload().GetBody())).Scan(&id); err != nil {
		return nil, err
	}
	if s.then != nil {
		return s.then(ctx, tx, req)
	}
	return &pb.SimpleResponse{Username: fmt.Sprintf("order %d", id)}, nil
}

func (s *shop) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) { return &pb.Empty{}, nil }

func (s *shop) StreamingOutputCall(*pb.StreamingOutputCallRequest, grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	return nil
}

// config is a configuration that takes the caller from metadata.
func config() idemgrpc.Config {
	return idemgrpc.Config{
		Scope: func(ctx context.Context, info *grpc.UnaryServerInfo, _ any) (string, error) {
			who := metadata.ValueFromIncomingContext(ctx, "caller")
			return fmt.Sprint(who, info.FullMethod), nil
		},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// serve returns a client of a server of the shop, with client interceptors.
func (s *shop) serve(t testing.TB, config idemgrpc.Config, client ...grpc.UnaryClientInterceptor) pb.TestServiceClient {
	t.Helper()
	keyed, err := idemgrpc.New(s.pool, config)
	if err != nil {
		t.Fatal(err)
	}
	return dial(t, listen(t, s, grpc.UnaryInterceptor(keyed.Unary()), grpc.StreamInterceptor(keyed.Stream())), client...)
}

// listen starts a server and returns its address.
func listen(t testing.TB, s pb.TestServiceServer, opts ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(opts...)
	pb.RegisterTestServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func dial(t testing.TB, address string, client ...grpc.UnaryClientInterceptor) pb.TestServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(client...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewTestServiceClient(conn)
}

// key returns the context of a call with a key.
func key(ctx context.Context, key string, more ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, append(more, idemgrpc.KeyMetadata, key)...)
}

func order(item string) *pb.SimpleRequest {
	return &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte(item)}}
}

func (s *shop) wantOrders(t testing.TB, want int) {
	t.Helper()
	var got int
	if err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM orders`).Scan(&got); err != nil || got != want {
		t.Errorf("%d orders, %v; want %d", got, err, want)
	}
}
