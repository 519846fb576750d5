package idemconnect_test

import (
	"context"
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem/idemconnect"
	"github.com/idem-go/idem/idemgrpc"
)

// A service may move from grpc-go to connect-go, or be served by both. Records of one module must
// be valid for the other.
func TestRecords_AreThoseOfIdemgrpc(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	procedure := pb.TestService_UnaryCall_FullMethodName
	there, err := idemgrpc.New(s.pool, idemgrpc.Config{Scope: func(_ context.Context, info *grpc.UnaryServerInfo, _ any) (string, error) {
		return info.FullMethod, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	byGRPC := func(key, item string) (*pb.SimpleResponse, error) {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(idemgrpc.KeyMetadata, key))
		reply, err := there.Unary()(ctx, order(item, "").Msg, &grpc.UnaryServerInfo{FullMethod: procedure}, func(ctx context.Context, _ any) (any, error) {
			if _, err := idemgrpc.Tx(ctx).Exec(ctx, `INSERT INTO orders (item) VALUES ($1)`, item); err != nil || item == "nothing" {
				return nil, status.Error(codes.NotFound, fmt.Sprint("grpc-go has none ", err))
			}
			return &pb.SimpleResponse{Username: "grpc-go"}, nil
		})
		r, _ := reply.(*pb.SimpleResponse)
		return r, err
	}
	s.then = func(_ context.Context, _ pgx.Tx, req *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error) {
		if string(req.Msg.GetPayload().GetBody()) == "nothing" {
			return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("connect-go has none"))
		}
		return connect.NewResponse(&pb.SimpleResponse{Username: "connect-go"}), nil
	}
	c := config()
	c.Scope = func(_ context.Context, req connect.AnyRequest) (string, error) { return req.Spec().Procedure, nil }
	client := dial(t, s.serve(t, c))

	first, err := byGRPC("a", "teapot")
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := client.UnaryCall(t.Context(), order("teapot", "a")); err != nil || !proto.Equal(reply.Msg, first) || !isReplay(reply.Header()) {
		t.Errorf("%v, %v; want %v", reply, err, first)
	}
	second, err := client.UnaryCall(t.Context(), order("kettle", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := byGRPC("b", "kettle"); err != nil || !proto.Equal(reply, second.Msg) {
		t.Errorf("%v, %v; want %v", reply, err, second.Msg)
	}
	if _, err := byGRPC("b", "teapot"); idemgrpc.ReasonOf(err) != idemgrpc.KeyReused {
		t.Error(err)
	}
	_, errFirst := byGRPC("c", "nothing")
	if _, err := client.UnaryCall(t.Context(), order("nothing", "c")); connect.CodeOf(err) != connect.CodeNotFound || told(t, err) != fmt.Sprint("not_found ", status.Convert(errFirst).Message(), " []") {
		t.Errorf("%v, want %v", err, errFirst)
	}
	_, errSecond := client.UnaryCall(t.Context(), order("nothing", "d"))
	if _, err := byGRPC("d", "nothing"); status.Code(err) != codes.NotFound || status.Convert(err).Message() != "connect-go has none" || idemconnect.ReasonOf(errSecond) != "" {
		t.Errorf("%v, want %v", err, errSecond)
	}
	s.wantOrders(t, 2)
}
