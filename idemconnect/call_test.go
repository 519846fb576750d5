package idemconnect_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemconnect"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

func isReplay(header http.Header) bool { return header.Get(idemconnect.ReplayedHeader) == "true" }

// metaOf returns the metadata of an error.
func metaOf(err error) http.Header {
	if told, ok := errors.AsType[*connect.Error](err); ok {
		return told.Meta()
	}
	return nil
}

// A retry may use another protocol and reach another server.
func TestServer_RetryGetsTheRecordedReply(t *testing.T) {
	t.Parallel()
	for name, options := range protocols {
		inShop(t, name, func(t *testing.T, s *shop) {
			here, there := s.serve(t, config()), s.serve(t, config())
			first, err := dial(t, here, options...).UnaryCall(t.Context(), order("teapot", "k"))
			if err != nil || isReplay(first.Header()) {
				t.Fatal(err, first)
			}
			for again, options := range protocols {
				for _, url := range []string{here, there} {
					reply, err := dial(t, url, options...).UnaryCall(t.Context(), order("teapot", "k"))
					if err != nil || !proto.Equal(first.Msg, reply.Msg) || !isReplay(reply.Header()) {
						t.Errorf("%s: %v, %v; want %v, replayed", again, reply, err, first.Msg)
					}
				}
			}
			s.wantOrders(t, 1)
		})
	}
}

func TestServer_CommitsRecordsOrForgetsByCode(t *testing.T) {
	t.Parallel()
	final := map[connect.Code]bool{
		connect.CodeInvalidArgument: true, connect.CodeNotFound: true, connect.CodeAlreadyExists: true, connect.CodePermissionDenied: true,
		connect.CodeFailedPrecondition: true, connect.CodeOutOfRange: true,
	}
	names := slices.Sorted(maps.Keys(protocols))
	for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
		protocol := names[int(code)%len(names)] // each code in one of the protocols
		inShop(t, fmt.Sprint(code, " ", protocol), func(t *testing.T, s *shop) {
			runs := 0
			s.then = func(context.Context, pgx.Tx, *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error) {
				runs++
				detail, err := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: "SOLD_OUT", Domain: "shop"})
				said := connect.NewError(code, errors.Join(errors.New("sold out"), err))
				said.AddDetail(detail)
				return nil, said
			}
			client := dial(t, s.serve(t, config()), protocols[protocol]...)
			want := 1
			if !final[code] {
				want = 2
			}
			for n := range 2 {
				_, err := client.UnaryCall(t.Context(), order("teapot", "k"))
				if got := told(t, err); got != fmt.Sprint(code, " sold out [SOLD_OUT]") {
					t.Errorf("call %d: %s", n, got)
				}
				if isReplay(metaOf(err)) != (final[code] && n == 1) {
					t.Errorf("call %d has the header %v", n, metaOf(err))
				}
			}
			if runs != want {
				t.Errorf("the handler has run %d times, want %d", runs, want)
			}
			s.wantOrders(t, 0)
		})
	}
}

// told formats an error as a client sees it.
func told(t *testing.T, err error) string {
	t.Helper()
	said, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return fmt.Sprint(err)
	}
	var reasons []string
	for _, detail := range said.Details() {
		value, err := detail.Value()
		if info, ok := value.(*errdetails.ErrorInfo); err == nil && ok {
			reasons = append(reasons, info.Reason)
		}
	}
	return fmt.Sprint(said.Code(), " ", said.Message(), " ", reasons)
}

func TestKey_MustBeExactlyOne(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	url := s.serve(t, config())
	for protocol, options := range protocols {
		client := dial(t, url, options...)
		for name, test := range map[string]struct {
			req  *connect.Request[pb.SimpleRequest]
			want idemconnect.Reason
		}{
			"none":     {order("teapot", ""), idemconnect.KeyMissing},
			"two":      {order("teapot", "a", idemconnect.KeyHeader, "b"), idemconnect.KeyInvalid},
			"empty":    {order("teapot", "", idemconnect.KeyHeader, ""), idemconnect.KeyInvalid},
			"too long": {order("teapot", strings.Repeat("k", 256)), idemconnect.KeyInvalid},
		} {
			_, err := client.UnaryCall(t.Context(), test.req)
			if connect.CodeOf(err) != connect.CodeInvalidArgument || idemconnect.ReasonOf(err) != test.want || strings.Contains(err.Error(), "kkkk") {
				t.Errorf("%s, %s: %v", protocol, name, err)
			}
		}
	}
	s.wantOrders(t, 0)
}

// Headers that a handler set in a rolled-back run are not sent, and each run gets the original
// request. Headers of outer interceptors are kept.
func TestServer_EachRunHasAFreshRequest(t *testing.T) {
	t.Parallel()
	for protocol, options := range protocols {
		inShop(t, protocol, func(t *testing.T, s *shop) {
			runs := 0
			s.then = func(ctx context.Context, _ pgx.Tx, req *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error) {
				runs++
				item := string(req.Msg.GetPayload().GetBody())
				req.Msg.Payload = nil
				if req.Header().Get("Idempotency-Key") != "k" {
					t.Errorf("run %d is sent %v", runs, req.Header())
				}
				req.Header().Del("Idempotency-Key")
				info, _ := connect.CallInfoForHandlerContext(ctx)
				info.ResponseHeader().Add("Run", fmt.Sprint(runs))
				info.ResponseTrailer().Add("End", fmt.Sprint(runs))
				reply := connect.NewResponse(&pb.SimpleResponse{Username: item})
				reply.Header().Add("Reply", fmt.Sprint(runs))
				if runs < 3 {
					return nil, connect.NewError(connect.CodeInternal, &pgconn.PgError{Code: "40001"})
				}
				return reply, nil
			}
			front := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
				return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
					info, _ := connect.CallInfoForHandlerContext(ctx)
					info.ResponseHeader().Set("Front", "yes")
					return next(ctx, req)
				}
			})
			client := dial(t, s.serve(t, config(), front), options...)
			reply, err := client.UnaryCall(t.Context(), order("teapot", "k"))
			if err != nil || reply.Msg.GetUsername() != "teapot" {
				t.Fatal(reply, err)
			}
			h := reply.Header()
			if got := fmt.Sprint(h.Values("Front"), h.Values("Run"), h.Values("Reply"), reply.Trailer().Values("End")); got != "[yes] [3] [3] [3]" {
				t.Errorf("the client was sent %s", got)
			}
			s.wantOrders(t, 1)
		})
	}
}

// A simple handler has no wrappers around its messages, and sets headers through its context.
func TestServer_WorksWithSimpleHandlers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	keyed, err := idemconnect.New(s.pool, config())
	if err != nil {
		t.Fatal(err)
	}
	procedure := "/grpc.testing.TestService/UnaryCall"
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandlerSimple(procedure, func(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		_, err := idemconnect.Tx(ctx).Exec(ctx, `INSERT INTO orders (item) VALUES ($1)`, string(req.GetPayload().GetBody()))
		return &pb.SimpleResponse{Username: "done"}, err
	}, connect.WithInterceptors(keyed)))
	client := dial(t, listen(t, mux))
	for n := range 2 {
		if reply, err := client.UnaryCall(t.Context(), order("teapot", "k")); err != nil || reply.Msg.GetUsername() != "done" || isReplay(reply.Header()) != (n == 1) {
			t.Error(reply, err)
		}
	}
	s.wantOrders(t, 1)
}

func TestServer_PanicLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var calm atomic.Bool
	s.then = func(context.Context, pgx.Tx, *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error) {
		if !calm.Load() {
			panic("no tea")
		}
		return connect.NewResponse(&pb.SimpleResponse{}), nil
	}
	client := dialHTTP1(t, s.serve(t, config()))
	if _, err := client.UnaryCall(t.Context(), order("teapot", "k")); err == nil {
		t.Error("no error")
	}
	s.wantOrders(t, 0)
	calm.Store(true)
	if reply, err := client.UnaryCall(t.Context(), order("teapot", "k")); err != nil || isReplay(reply.Header()) {
		t.Error(reply, err)
	}
	s.wantOrders(t, 1)
}

func TestServer_RefusesStreams(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, test := range []struct {
		name   string
		change func(*idemconnect.Config)
		key    string
		want   idemconnect.Reason
	}{
		{"needs a key", func(*idemconnect.Config) {}, "", idemconnect.Streaming},
		{"has one", func(c *idemconnect.Config) { c.Optional = true }, "k", idemconnect.Streaming},
		{"optional", func(c *idemconnect.Config) { c.Optional = true }, "", ""},
		{"left out", func(c *idemconnect.Config) { c.Methods = func(string) bool { return false } }, "", ""},
	} {
		for protocol, options := range protocols {
			c := config()
			test.change(&c)
			req := connect.NewRequest(&pb.StreamingOutputCallRequest{})
			if test.key != "" {
				req.Header().Set(idemconnect.KeyHeader, test.key)
			}
			stream, err := dial(t, s.serve(t, c), options...).StreamingOutputCall(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if stream.Receive(); idemconnect.ReasonOf(stream.Err()) != test.want || test.want == "" && stream.Err() != nil {
				t.Errorf("%s, %s: %v", test.name, protocol, stream.Err())
			}
			_ = stream.Close()
		}
	}
}

func TestNew_RejectsAnInvalidConfig(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*idemconnect.Config, **pgxpool.Pool){
		"pool":    func(_ *idemconnect.Config, pool **pgxpool.Pool) { *pool = nil },
		"scope":   func(c *idemconnect.Config, _ **pgxpool.Pool) { c.Scope = nil },
		"without": func(c *idemconnect.Config, _ **pgxpool.Pool) { c.Without = []string{"/client_time"} },
		"options": func(c *idemconnect.Config, _ **pgxpool.Pool) { c.Options = []idem.Option{idem.WithTTL(-1)} },
	} {
		pool, c := &pgxpool.Pool{}, config()
		spoil(&c, &pool)
		if _, err := idemconnect.New(pool, c); err == nil || !strings.HasPrefix(err.Error(), "idemconnect: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The acknowledgment of a COMMIT is lost. With a key the record shows the outcome, and the client
// gets the reply. Without a key there is no record.
func TestServer_ResolvesALostAcknowledgement(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"k", ""} {
		s := newShop(t)
		proxy := pgtest.Proxy(t, s.pool.Config().ConnString())
		behind := &shop{pool: pgtest.Open(t, proxy.DSN())}
		c := config()
		c.Optional = key == ""
		client := dial(t, behind.serve(t, c))
		proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
		_, err := client.UnaryCall(t.Context(), order("teapot", key))
		if key != "" && err != nil || key == "" && (connect.CodeOf(err) != connect.CodeUnknown || idemconnect.ReasonOf(err) != idemconnect.OutcomeUnknown) {
			t.Errorf("key %q: %v", key, err)
		}
		s.wantOrders(t, 1)
	}
}

// Protobuf cannot encode text that is not valid UTF-8, so the record has a repaired text. The first
// caller must get the same text as a replay.
func TestServer_ReplaysTheTextOfAStatus(t *testing.T) {
	t.Parallel()
	for name, options := range protocols {
		inShop(t, name, func(t *testing.T, s *shop) {
			s.then = func(context.Context, pgx.Tx, *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error) {
				said := connect.NewError(connect.CodeNotFound, errors.New("no \xff in stock"))
				said.Meta().Set("Left", "2")
				return nil, said
			}
			client := dial(t, s.serve(t, config()), options...)
			var told []string
			for range 2 {
				_, err := client.UnaryCall(t.Context(), order("teapot", "k"))
				told = append(told, fmt.Sprint(err))
				if n := len(told); connect.CodeOf(err) != connect.CodeNotFound || isReplay(metaOf(err)) != (n == 2) || n == 1 && metaOf(err).Get("Left") != "2" {
					t.Errorf("answer %d is %v, with %v", n, err, metaOf(err))
				}
			}
			if told[0] != told[1] || told[0] != "not_found: no \uFFFD in stock" {
				t.Errorf("%q", told)
			}
			s.wantOrders(t, 0)
		})
	}
}

// Connect sends an empty message for a nil pointer.
func TestServer_NilReplyIsEmpty(t *testing.T) {
	t.Parallel()
	for name, options := range protocols {
		inShop(t, name, func(t *testing.T, s *shop) {
			s.then = func(context.Context, pgx.Tx, *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error) {
				return connect.NewResponse[pb.SimpleResponse](nil), nil
			}
			client := dial(t, s.serve(t, config()), options...)
			for n := range 2 {
				reply, err := client.UnaryCall(t.Context(), order("teapot", "k"))
				if err != nil || !proto.Equal(reply.Msg, &pb.SimpleResponse{}) || isReplay(reply.Header()) != (n == 1) {
					t.Errorf("%v, %v", reply, err)
				}
			}
			s.wantOrders(t, 1)
		})
	}
}
