package idemgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

func isReplay(md metadata.MD) bool { return len(md.Get(idemgrpc.ReplayedMetadata)) > 0 }

func TestServer_RetryGetsTheRecordedReply(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	here, there := s.serve(t, config()), s.serve(t, config())
	ctx := key(t.Context(), "k")
	var header metadata.MD
	first, err := here.UnaryCall(ctx, order("teapot"), grpc.Header(&header))
	if err != nil || isReplay(header) {
		t.Fatal(err, header)
	}
	for _, client := range []pb.TestServiceClient{here, there} {
		again, err := client.UnaryCall(ctx, order("teapot"), grpc.Header(&header))
		if err != nil || !proto.Equal(first, again) || !isReplay(header) {
			t.Errorf("%v, %v, %v; want %v, replayed", again, header, err, first)
		}
	}
	s.wantOrders(t, 1)
}

func TestServer_CommitsRecordsOrForgetsByCode(t *testing.T) {
	t.Parallel()
	final := map[codes.Code]bool{
		codes.InvalidArgument: true, codes.NotFound: true, codes.AlreadyExists: true, codes.PermissionDenied: true,
		codes.FailedPrecondition: true, codes.OutOfRange: true,
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		inShop(t, code.String(), func(t *testing.T, s *shop) {
			detail := &errdetails.ErrorInfo{Reason: "SOLD_OUT", Domain: "shop"}
			said, err := status.New(code, "sold out").WithDetails(detail)
			if err != nil {
				t.Fatal(err)
			}
			runs := 0
			s.then = func(context.Context, pgx.Tx, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				runs++
				return nil, said.Err()
			}
			client := s.serve(t, config())
			want := 1
			if !final[code] {
				want = 2
			}
			for n := range 2 {
				var header metadata.MD
				_, err := client.UnaryCall(key(t.Context(), "k"), order("teapot"), grpc.Header(&header))
				if !proto.Equal(status.Convert(err).Proto(), said.Proto()) {
					t.Errorf("%v, want %v", err, said.Err())
				}
				if isReplay(header) != (final[code] && n == 1) {
					t.Errorf("call %d has the header %v", n, header)
				}
			}
			if runs != want {
				t.Errorf("the handler has run %d times, want %d", runs, want)
			}
			s.wantOrders(t, 0)
		})
	}
}

func TestServer_PlainErrorIsUnknown(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.then = func(context.Context, pgx.Tx, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return nil, errors.Join(errors.New("out of tea"), idem.Reject(idem.Response{}))
	}
	client := s.serve(t, config())
	for range 2 {
		if _, err := client.UnaryCall(key(t.Context(), "k"), order("teapot")); status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "out of tea") {
			t.Error(err)
		}
	}
	s.wantOrders(t, 0)
}

func TestKey_BelongsToCallerMethodAndRequest(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := s.serve(t, config())
	ctx := key(t.Context(), "k", "caller", "alice")
	if _, err := client.UnaryCall(ctx, order("teapot")); err != nil {
		t.Fatal(err)
	}
	_, err := client.UnaryCall(ctx, order("kettle"))
	if status.Code(err) != codes.FailedPrecondition || idemgrpc.ReasonOf(err) != idemgrpc.KeyReused || strings.Contains(err.Error(), "teapot") {
		t.Error(err)
	}
	var header metadata.MD
	if _, err := client.UnaryCall(key(t.Context(), "k", "caller", "bob"), order("teapot"), grpc.Header(&header)); err != nil || isReplay(header) {
		t.Errorf("the call of another: %v, %v", header, err)
	}
	if _, err := client.EmptyCall(ctx, &pb.Empty{}, grpc.Header(&header)); err != nil || isReplay(header) {
		t.Errorf("another method: %v, %v", header, err)
	}
	s.wantOrders(t, 2)
}

// If two methods share a scope, their fingerprints still differ.
func TestKey_OfAnotherMethodIsRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := config()
	c.Scope = func(context.Context, *grpc.UnaryServerInfo, any) (string, error) { return "all", nil }
	client := s.serve(t, c)
	if _, err := client.UnaryCall(key(t.Context(), "k"), &pb.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.EmptyCall(key(t.Context(), "k"), &pb.Empty{}); idemgrpc.ReasonOf(err) != idemgrpc.KeyReused {
		t.Error(err)
	}
}

func TestKey_MustBeExactlyOne(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := s.serve(t, config())
	for name, test := range map[string]struct {
		ctx  context.Context
		want idemgrpc.Reason
	}{
		"none":     {t.Context(), idemgrpc.KeyMissing},
		"two":      {key(key(t.Context(), "a"), "b"), idemgrpc.KeyInvalid},
		"empty":    {key(t.Context(), ""), idemgrpc.KeyInvalid},
		"too long": {key(t.Context(), strings.Repeat("k", 256)), idemgrpc.KeyInvalid},
	} {
		_, err := client.UnaryCall(test.ctx, order("teapot"))
		if status.Code(err) != codes.InvalidArgument || idemgrpc.ReasonOf(err) != test.want || strings.Contains(err.Error(), "kkkk") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.wantOrders(t, 0)
}

func TestKey_MayBeAFieldOfTheRequest(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := config()
	c.Key = func(_ context.Context, req any) (string, bool) {
		id := req.(*pb.SimpleRequest).GetResponseStatus().GetMessage()
		return id, id != ""
	}
	c.Without = []string{"response_status.message"}
	client := s.serve(t, c)
	request := order("teapot")
	request.ResponseStatus = &pb.EchoStatus{Message: "request 1"}
	var header metadata.MD
	for n := range 2 {
		if _, err := client.UnaryCall(t.Context(), request, grpc.Header(&header)); err != nil || isReplay(header) != (n == 1) {
			t.Error(header, err)
		}
	}
	s.wantOrders(t, 1)
}

func TestServer_InProgressHasARetryDelay(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	begun, release := make(chan struct{}), make(chan struct{})
	s.then = func(context.Context, pgx.Tx, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		close(begun)
		<-release
		return &pb.SimpleResponse{}, nil
	}
	c := config()
	c.Options = []idem.Option{idem.WithWait(0)}
	client, there := s.serve(t, c), s.serve(t, c)
	first := make(chan error, 1)
	go func() {
		_, err := client.UnaryCall(key(t.Context(), "k"), order("teapot"))
		first <- err
	}()
	<-begun
	_, err := there.UnaryCall(key(t.Context(), "k"), order("teapot"))
	told := false
	for _, detail := range status.Convert(err).Details() {
		info, ok := detail.(*errdetails.RetryInfo)
		told = told || ok && info.GetRetryDelay().AsDuration() > 0
	}
	if status.Code(err) != codes.Aborted || idemgrpc.ReasonOf(err) != idemgrpc.InProgress || !told {
		t.Error(err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	s.wantOrders(t, 1)
}

// Metadata that a handler set in a rolled-back run is not sent, and each run gets the original
// request.
func TestServer_EachRunHasAFreshRequest(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	runs := 0
	s.then = func(ctx context.Context, _ pgx.Tx, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		runs++
		item := string(req.GetPayload().GetBody())
		req.Payload = nil
		for _, err := range []error{
			grpc.SetHeader(ctx, metadata.Pairs("run", fmt.Sprint(runs))), grpc.SendHeader(ctx, metadata.Pairs("sent", "yes")),
			grpc.SetTrailer(ctx, metadata.Pairs("end", fmt.Sprint(runs))),
		} {
			if err != nil {
				return nil, err
			}
		}
		if runs < 3 {
			return nil, &pgconn.PgError{Code: "40001"}
		}
		return &pb.SimpleResponse{Username: item}, nil
	}
	client := s.serve(t, config())
	var header, trailer metadata.MD
	reply, err := client.UnaryCall(key(t.Context(), "k"), order("teapot"), grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil || reply.GetUsername() != "teapot" {
		t.Fatal(reply, err)
	}
	if got := fmt.Sprint(header.Get("run"), header.Get("sent"), trailer.Get("end")); got != "[3] [yes] [3]" {
		t.Errorf("the client was sent %s", got)
	}
	s.wantOrders(t, 1)
}

// A failure of the handler's own database is retryable. A handler may also lose its connection to
// another server. The interceptor does not know whether that server has executed the call.
func TestServer_FailureOfTheHandlerByItsCause(t *testing.T) {
	t.Parallel()
	fails := func(err error) func(context.Context, pgx.Tx) error {
		return func(context.Context, pgx.Tx) error { return fmt.Errorf("the order: %w", err) }
	}
	for name, test := range map[string]struct {
		then   func(context.Context, pgx.Tx) error
		code   codes.Code
		reason idemgrpc.Reason
	}{
		"deadlock": {fails(&pgconn.PgError{Code: "40P01"}), codes.Unavailable, idemgrpc.NotExecuted},
		"lost session": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			return fmt.Errorf("the order: %w", err)
		}, codes.Unavailable, idemgrpc.NotExecuted},
		"another server": {fails(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}), codes.Unknown, ""},
	} {
		inShop(t, name, func(t *testing.T, s *shop) {
			s.then = func(ctx context.Context, tx pgx.Tx, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				return nil, test.then(ctx, tx)
			}
			for _, optional := range []bool{false, true} {
				c := config()
				c.Optional, c.Options = optional, []idem.Option{idem.WithRetries(0)}
				ctx := t.Context()
				if !optional {
					ctx = key(ctx, "k")
				}
				_, err := s.serve(t, c).UnaryCall(ctx, order("teapot"))
				if status.Code(err) != test.code || idemgrpc.ReasonOf(err) != test.reason {
					t.Errorf("optional %t: %v", optional, err)
				}
			}
			s.wantOrders(t, 0)
		})
	}
}

func TestServer_UnrecordableReplyIsNotCommitted(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(context.Context, pgx.Tx) (*pb.SimpleResponse, error){
		"a transaction that has failed": func(ctx context.Context, tx pgx.Tx) (*pb.SimpleResponse, error) {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return &pb.SimpleResponse{}, nil
		},
		"too large": func(context.Context, pgx.Tx) (*pb.SimpleResponse, error) {
			return &pb.SimpleResponse{Username: strings.Repeat("x", 2000)}, nil
		},
	} {
		inShop(t, name, func(t *testing.T, s *shop) {
			s.then = func(ctx context.Context, tx pgx.Tx, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				return then(ctx, tx)
			}
			c := config()
			c.Options = []idem.Option{idem.WithMaxResponse(1000)}
			if _, err := s.serve(t, c).UnaryCall(key(t.Context(), "k"), order("teapot")); status.Code(err) != codes.Internal || idemgrpc.ReasonOf(err) != idemgrpc.Broken {
				t.Error(err)
			}
			s.wantOrders(t, 0)
		})
	}
}

func TestOptional_CallWithoutAKeyHasATransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := config()
	c.Optional = true
	client := s.serve(t, c)
	if _, err := client.UnaryCall(t.Context(), order("teapot")); err != nil {
		t.Fatal(err)
	}
	s.wantOrders(t, 1)
	s.then = func(context.Context, pgx.Tx, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return nil, status.Error(codes.NotFound, "no")
	}
	if _, err := client.UnaryCall(t.Context(), order("teapot")); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	s.wantOrders(t, 1)
	var records int
	if err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM idem.records`).Scan(&records); err != nil || records != 0 {
		t.Errorf("%d records, %v", records, err)
	}
}

func TestScope_ErrorRefusesTheCall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, test := range []struct {
		err  error
		want codes.Code
	}{{errors.New("who are you?"), codes.PermissionDenied}, {status.Error(codes.Unauthenticated, "who are you?"), codes.Unauthenticated}} {
		c := config()
		c.Scope = func(context.Context, *grpc.UnaryServerInfo, any) (string, error) { return "", test.err }
		if _, err := s.serve(t, c).UnaryCall(key(t.Context(), "k"), order("teapot")); status.Code(err) != test.want {
			t.Error(err)
		}
	}
	s.wantOrders(t, 0)
}

func TestServer_RefusesStreams(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, test := range []struct {
		name   string
		change func(*idemgrpc.Config)
		ctx    context.Context
		want   codes.Code
	}{
		{"needs a key", func(*idemgrpc.Config) {}, t.Context(), codes.Unimplemented},
		{"has one", func(c *idemgrpc.Config) { c.Optional = true }, key(t.Context(), "k"), codes.Unimplemented},
		{"optional", func(c *idemgrpc.Config) { c.Optional = true }, t.Context(), codes.OK},
		{"left out", func(c *idemgrpc.Config) { c.Methods = func(string) bool { return false } }, t.Context(), codes.OK},
	} {
		c := config()
		test.change(&c)
		stream, err := s.serve(t, c).StreamingOutputCall(test.ctx, &pb.StreamingOutputCallRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != test.want && (test.want != codes.OK || err.Error() != "EOF") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestServer_MethodWithoutEffectPassesThrough(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	keyed, err := idemgrpc.New(s.pool, config())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{healthpb.Health_Check_FullMethodName, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"} {
		passed := false
		_, err := keyed.Unary()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: name}, func(ctx context.Context, _ any) (any, error) {
			passed = true
			defer func() {
				if recover() == nil {
					t.Error("Tx has returned")
				}
			}()
			idemgrpc.Tx(ctx)
			return nil, nil
		})
		if err != nil || !passed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without the generated code of a method, the server could not replay its reply.
func TestServer_MethodWithoutGeneratedCodeIsRefused(t *testing.T) {
	t.Parallel()
	keyed, err := idemgrpc.New(newShop(t).pool, config())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/shop.Orders/Create", pb.TestService_UnaryCall_FullMethodName + "2", "", "/", "/grpc.testing.SimpleRequest/X"} {
		_, err := keyed.Unary()(key(t.Context(), "k"), &pb.SimpleRequest{}, &grpc.UnaryServerInfo{FullMethod: name}, func(context.Context, any) (any, error) {
			t.Error("the handler has run")
			return nil, nil
		})
		if idemgrpc.ReasonOf(err) != idemgrpc.Broken {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestNew_RejectsAnInvalidConfig(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*idemgrpc.Config, **pgxpool.Pool){
		"pool":    func(_ *idemgrpc.Config, pool **pgxpool.Pool) { *pool = nil },
		"scope":   func(c *idemgrpc.Config, _ **pgxpool.Pool) { c.Scope = nil },
		"without": func(c *idemgrpc.Config, _ **pgxpool.Pool) { c.Without = []string{"/client_time"} },
		"options": func(c *idemgrpc.Config, _ **pgxpool.Pool) { c.Options = []idem.Option{idem.WithTTL(-1)} },
	} {
		pool, c := &pgxpool.Pool{}, config()
		spoil(&c, &pool)
		if _, err := idemgrpc.New(pool, c); err == nil || !strings.HasPrefix(err.Error(), "idemgrpc: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The acknowledgment of a COMMIT is lost. The record shows the outcome, and the client gets the
// reply.
func TestServer_ResolvesALostAcknowledgement(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	proxy := pgtest.Proxy(t, s.pool.Config().ConnString())
	behind := &shop{pool: pgtest.Open(t, proxy.DSN())}
	client := behind.serve(t, config())
	proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
	if reply, err := client.UnaryCall(key(t.Context(), "k"), order("teapot")); err != nil || reply.GetUsername() != "order 1" {
		t.Error(reply, err)
	}
	s.wantOrders(t, 1)
}

// Without a key there is no record of the outcome. The client gets UNKNOWN and does not retry.
func TestOptional_LostAcknowledgementIsUnknown(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	proxy := pgtest.Proxy(t, s.pool.Config().ConnString())
	behind := &shop{pool: pgtest.Open(t, proxy.DSN())}
	c := config()
	c.Optional = true
	client := behind.serve(t, c)
	proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
	if _, err := client.UnaryCall(t.Context(), order("teapot")); status.Code(err) != codes.Unknown || idemgrpc.ReasonOf(err) != idemgrpc.OutcomeUnknown {
		t.Error(err)
	}
	s.wantOrders(t, 1)
}

// A COMMIT that the server rejects is not in doubt.
func TestOptional_RefusedCommitIsRetried(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	if _, err := s.pool.Exec(t.Context(), `ALTER TABLE orders ADD UNIQUE (item) DEFERRABLE INITIALLY DEFERRED`); err != nil {
		t.Fatal(err)
	}
	c := config()
	c.Optional = true
	client := s.serve(t, c)
	if _, err := client.UnaryCall(t.Context(), order("teapot")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UnaryCall(t.Context(), order("teapot")); status.Code(err) != codes.Internal || idemgrpc.ReasonOf(err) != idemgrpc.Broken {
		t.Error(err)
	}
	s.wantOrders(t, 1)
}

func TestServer_DeadlineLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var slow atomic.Bool
	slow.Store(true)
	s.then = func(ctx context.Context, _ pgx.Tx, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		if slow.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &pb.SimpleResponse{}, nil
	}
	client := s.serve(t, config())
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := client.UnaryCall(key(ctx, "k"), order("teapot")); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	slow.Store(false)
	if _, err := client.UnaryCall(key(t.Context(), "k"), order("teapot")); err != nil {
		t.Error(err)
	}
	s.wantOrders(t, 1)
}

// Protobuf cannot encode text that is not valid UTF-8, so the record has a repaired text. The first
// caller must get the same text as a replay.
func TestServer_ReplaysTheTextOfAStatus(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.then = func(ctx context.Context, _ pgx.Tx, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("left", "2"))
		said, err := status.New(codes.NotFound, "no \xff in stock").WithDetails(&errdetails.ErrorInfo{Reason: "SOLD_OUT"})
		if err != nil {
			return nil, err
		}
		return nil, said.Err()
	}
	client := s.serve(t, config())
	var trailer metadata.MD
	_, first := client.UnaryCall(key(t.Context(), "k"), order("teapot"), grpc.Trailer(&trailer))
	_, again := client.UnaryCall(key(t.Context(), "k"), order("teapot"))
	if !proto.Equal(status.Convert(first).Proto(), status.Convert(again).Proto()) || status.Code(first) != codes.NotFound {
		t.Errorf("%v, and then %v", first, again)
	}
	if text := status.Convert(first).Message(); text != "no \uFFFD in stock" || len(status.Convert(first).Details()) != 1 || len(trailer.Get("left")) != 1 {
		t.Errorf("the first caller was told %q, with %v and %v", text, status.Convert(first).Details(), trailer)
	}
	s.wantOrders(t, 0)
}

// gRPC sends an empty message for a nil pointer.
func TestServer_NilReplyIsEmpty(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.then = func(context.Context, pgx.Tx, *pb.SimpleRequest) (*pb.SimpleResponse, error) { return nil, nil }
	client := s.serve(t, config())
	for n := range 2 {
		var header metadata.MD
		reply, err := client.UnaryCall(key(t.Context(), "k"), order("teapot"), grpc.Header(&header))
		if err != nil || !proto.Equal(reply, &pb.SimpleResponse{}) || isReplay(header) != (n == 1) {
			t.Errorf("%v, %v, %v", reply, err, header)
		}
	}
	s.wantOrders(t, 1)
}

func TestServer_ReplyThatIsNoMessageIsNotCommitted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	keyed, err := idemgrpc.New(s.pool, config())
	if err != nil {
		t.Fatal(err)
	}
	behind := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		_, err := handler(ctx, req)
		return nil, err
	}
	client := dial(t, listen(t, s, grpc.ChainUnaryInterceptor(keyed.Unary(), behind)))
	for range 2 {
		if _, err := client.UnaryCall(key(t.Context(), "k"), order("teapot")); idemgrpc.ReasonOf(err) != idemgrpc.Broken {
			t.Error(err)
		}
	}
	s.wantOrders(t, 0)
}
