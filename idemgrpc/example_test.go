package idemgrpc_test

import (
	"context"
	"log"
	"net"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc"
)

// tenantOf returns the caller, as an earlier interceptor has authenticated it.
func tenantOf(context.Context) (string, error) { return "tenant-1", nil }

func ExampleNew() {
	pool, err := pgxpool.New(context.Background(), "postgres:///shop")
	if err != nil {
		log.Fatal(err)
	}
	keyed, err := idemgrpc.New(pool, idemgrpc.Config{
		Scope: func(ctx context.Context, info *grpc.UnaryServerInfo, _ any) (string, error) {
			tenant, err := tenantOf(ctx)
			return idem.Scope(tenant, info.FullMethod), err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(keyed.Unary()), grpc.ChainStreamInterceptor(keyed.Stream()))
	listener, err := net.Listen("tcp", ":8443")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}

func ExampleClientInterceptor() {
	conn, err := grpc.NewClient("orders:8443", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(idemgrpc.ClientInterceptor(idemgrpc.ClientConfig{})))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// All attempts of a call have one key. This key is derived from the task, so that it outlives
	// the process.
	ctx := idemgrpc.WithKey(context.Background(), "cart-17/charge")
	_ = ctx
}
