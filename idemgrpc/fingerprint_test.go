package idemgrpc_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/idem-go/idem/idemgrpc"
)

// asked sends two requests, given as bytes on the wire, with one key. It returns the answer to the
// second one.
func asked(t *testing.T, without []string, first, second []byte) idemgrpc.Reason {
	t.Helper()
	s := newShop(t)
	c := config()
	c.Without = without
	keyed, err := idemgrpc.New(s.pool, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, wire := range [][]byte{first, second} {
		request := &pb.SimpleRequest{}
		if err := proto.Unmarshal(wire, request); err != nil {
			t.Fatal(err)
		}
		ctx := incoming(t.Context(), "k")
		_, err = keyed.Unary()(ctx, request, &grpc.UnaryServerInfo{FullMethod: pb.TestService_UnaryCall_FullMethodName}, func(ctx context.Context, req any) (any, error) {
			return s.UnaryCall(ctx, req.(*pb.SimpleRequest))
		})
	}
	return idemgrpc.ReasonOf(err)
}

// field encodes a field of type bytes.
func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func number(n protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), value)
}

func join(parts ...[]byte) (all []byte) {
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

func TestFingerprint_CoversEveryField(t *testing.T) {
	t.Parallel()
	payload := func(body string, more ...[]byte) []byte {
		return field(3, join(append([][]byte{field(2, []byte(body))}, more...)...))
	}
	size, unknown := number(2, 7), field(99, []byte("new"))
	echo := func(code uint64, text string) []byte { return field(7, join(number(1, code), field(2, []byte(text)))) }
	for name, test := range map[string]struct {
		without       []string
		first, second []byte
		differ        bool
	}{
		"the order of fields":                 {nil, join(size, payload("a")), join(payload("a"), size), false},
		"another amount":                      {nil, join(size, payload("a")), join(number(2, 8), payload("a")), true},
		"a field that is not known":           {nil, join(payload("a"), unknown), join(payload("a"), field(99, []byte("other"))), true},
		"one that is missing":                 {nil, join(payload("a"), unknown), payload("a"), true},
		"its place":                           {nil, join(payload("a"), unknown), join(unknown, payload("a")), false},
		"one inside of a message":             {nil, payload("a", number(50, 1)), payload("a", number(50, 2)), true},
		"its place there":                     {nil, field(3, join(number(50, 1), field(2, []byte("a")))), payload("a", number(50, 1)), false},
		"a field of no matter":                {[]string{"response_size"}, join(size, payload("a")), payload("a"), false},
		"one of a message of no matter":       {[]string{"response_status.message"}, echo(5, "a"), echo(5, "b"), false},
		"another one of that message":         {[]string{"response_status.message"}, echo(5, "a"), echo(6, "a"), true},
		"one that the request does not have":  {[]string{"client.sent_at", "payload.sent_at"}, payload("a"), payload("b"), true},
		"the order of what is repeated there": {nil, join(field(99, []byte("a")), field(99, []byte("b"))), join(field(99, []byte("b")), field(99, []byte("a"))), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if reason := asked(t, test.without, test.first, test.second); (reason == idemgrpc.KeyReused) != test.differ {
				t.Errorf("the second request was told %q", reason)
			}
		})
	}
}

// Requests come from untrusted clients, so the cost may only grow with their size. The test is not
// parallel because it measures the allocations of the process.
func TestFingerprint_CostsNoMoreThanTheSize(t *testing.T) {
	s := newShop(t)
	keyed, err := idemgrpc.New(s.pool, config())
	if err != nil {
		t.Fatal(err)
	}
	request := structpb.NewStringValue(strings.Repeat("x", 1<<20))
	for range 1000 {
		request = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{request}})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = keyed.Unary()(incoming(t.Context(), "k"), request, &grpc.UnaryServerInfo{FullMethod: pb.TestService_UnaryCall_FullMethodName},
		func(context.Context, any) (any, error) { return &pb.SimpleResponse{}, nil })
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || took > 100<<20 {
		t.Errorf("a request of 1 MiB, 2,000 messages deep, took %d MiB, %v", took>>20, err)
	}
}
