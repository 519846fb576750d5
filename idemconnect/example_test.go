package idemconnect_test

import (
	"context"
	"log"
	"net/http"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemconnect"
	rpc "github.com/idem-go/idem/idemconnect/internal/grpc_testingconnect"
)

// tenantOf returns the caller, as an earlier interceptor has authenticated it.
func tenantOf(context.Context) (string, error) { return "tenant-1", nil }

// service is the implementation of the service.
type service struct {
	rpc.UnimplementedTestServiceHandler
}

func ExampleNew() {
	pool, err := pgxpool.New(context.Background(), "postgres:///shop")
	if err != nil {
		log.Fatal(err)
	}
	keyed, err := idemconnect.New(pool, idemconnect.Config{
		Scope: func(ctx context.Context, req connect.AnyRequest) (string, error) {
			tenant, err := tenantOf(ctx)
			return idem.Scope(tenant, req.Spec().Procedure), err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(rpc.NewTestServiceHandler(&service{}, connect.WithInterceptors(keyed)))
	log.Fatal(http.ListenAndServe(":8443", mux))
}

func ExampleClientInterceptor() {
	client := rpc.NewTestServiceClient(http.DefaultClient, "https://orders.example.com",
		connect.WithInterceptors(idemconnect.ClientInterceptor(idemconnect.ClientConfig{})))
	_ = client
	// All attempts of a call have one key. This key is derived from the task, so that it outlives
	// the process.
	ctx := idemconnect.WithKey(context.Background(), "cart-17/charge")
	_ = ctx
}
