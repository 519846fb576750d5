package idemmcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/idemmcp"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestMiddleware_ReplaysACallWithItsKey(t *testing.T) {
	t.Parallel()
	a := newAgency(t, nil)
	c, ctx := a.client(nil), idemmcp.WithKey(t.Context(), "step-1")
	for i, step := range []struct {
		ctx  context.Context
		to   string
		want string
	}{
		{ctx, "Rome", `{"seat":1}, error false, replayed <nil>`},
		{ctx, "Rome", `{"seat":1}, error false, replayed true`},
		{ctx, "Oslo", `refused: IDEMPOTENCY_KEY_REUSED`},
		{t.Context(), "Rome", `{"seat":2}, error false, replayed <nil>`},
		{idemmcp.WithKey(t.Context(), strings.Repeat("k", 256)), "Rome", `refused: IDEMPOTENCY_KEY_INVALID`},
		{idemmcp.WithKey(t.Context(), ""), "Rome", `refused: IDEMPOTENCY_KEY_INVALID`},
	} {
		if got := text(c.CallTool(step.ctx, call(step.to))); got != step.want {
			t.Errorf("call %d: %s, want %s", i, got, step.want)
		}
	}
	if n := a.bookings(); n != 2 {
		t.Errorf("%d bookings, want 2", n)
	}
}

func TestMiddleware_OtherToolsNeedNoKey(t *testing.T) {
	t.Parallel()
	a := newAgency(t, nil)
	session, err := a.client(nil).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if got := text(session.CallTool(t.Context(), call("Rome"))); got != "refused: IDEMPOTENCY_KEY_MISSING" {
		t.Errorf("a tool that needs a key: %s", got)
	}
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "look", Arguments: trip{To: "Rome"}}); err != nil {
		t.Errorf("a tool that needs none: %v", err)
	}
}

// A number in a replay has all digits of the recorded one.
func TestDecode_KeepsStructuredContent(t *testing.T) {
	t.Parallel()
	const recorded = `{"content":[],"structuredContent":{"seat":9007199254740993}}`
	result, err := idemmcp.Decode([]byte(recorded))
	if err != nil {
		t.Fatal(err)
	}
	if sent, err := json.Marshal(result); err != nil || !strings.Contains(string(sent), `{"seat":9007199254740993}`) {
		t.Errorf("the replay is %s, error %v", sent, err)
	}
}

func TestMiddleware_ErrorResultLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	for name, recorded := range map[string]bool{"not recorded": false, "recorded": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAgency(t, func(c *idemmcp.Config) {
				c.RecordError = func(*mcp.CallToolResult) bool { return recorded }
			})
			a.then = func(context.Context) error { return errors.New("sold out") }
			c, ctx := a.client(nil), idemmcp.WithKey(t.Context(), "k")
			if got := text(c.CallTool(ctx, call("Rome"))); got != "sold out, error true, replayed <nil>" {
				t.Errorf("the first call: %s", got)
			}
			a.then = nil
			want, bookings := `{"seat":2}, error false, replayed <nil>`, 1
			if recorded {
				want, bookings = "sold out, error true, replayed true", 0
			}
			if got := text(c.CallTool(ctx, call("Rome"))); got != want || a.bookings() != bookings {
				t.Errorf("the second call: %s, want %s; %d bookings", got, want, a.bookings())
			}
		})
	}
}

func TestMiddleware_RunsAgainAfterASerializationFailure(t *testing.T) {
	t.Parallel()
	a := newAgency(t, nil)
	a.then = func(context.Context) error {
		if a.runs == 1 {
			return &pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "40001"}
		}
		return nil
	}
	got := text(a.client(nil).CallTool(t.Context(), call("Rome")))
	if got != `{"seat":2}, error false, replayed <nil>` || a.runs != 2 || a.bookings() != 1 {
		t.Errorf("%s after %d runs, with %d bookings", got, a.runs, a.bookings())
	}
}

func TestSource_KeyFromArguments(t *testing.T) {
	t.Parallel()
	a := newAgency(t, func(c *idemmcp.Config) {
		c.Tools = map[string]idemmcp.Source{"book": idemmcp.FromArgument("meta", "idempotency-key"), "look": idemmcp.FromArguments(time.Hour)}
	})
	session, err := a.client(nil).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for i, step := range []struct {
		in   trip
		want string
	}{
		{trip{"Rome", map[string]string{"idempotency-key": "r1"}}, `{"seat":1}, error false, replayed <nil>`},
		{trip{"Rome", map[string]string{"idempotency-key": "r1"}}, `{"seat":1}, error false, replayed true`},
		{trip{"Oslo", map[string]string{"idempotency-key": "r1"}}, "refused: IDEMPOTENCY_KEY_REUSED"},
		{trip{To: "Rome"}, "refused: IDEMPOTENCY_KEY_MISSING"},
	} {
		if got := text(session.CallTool(t.Context(), &mcp.CallToolParams{Name: "book", Arguments: step.in})); got != step.want {
			t.Errorf("call %d: %s, want %s", i, got, step.want)
		}
	}
	for i, want := range []any{nil, true} {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "look", Arguments: trip{To: "Rome"}})
		if err != nil || result.Meta[idemmcp.ReplayedMeta] != want {
			t.Errorf("call %d with the same arguments: %+v, error %v", i, result, err)
		}
	}
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if hint := tool.Annotations != nil && tool.Annotations.IdempotentHint; hint != (tool.Name == "book") {
			t.Errorf("%s is listed with idempotentHint %t", tool.Name, hint)
		}
	}
}

// cutter breaks a connection after a number of bytes in both directions, once.
type cutter struct {
	left atomic.Int64
	used atomic.Bool
}

func (c *cutter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &cut{Conn: conn, by: c}, err
}

type cut struct {
	net.Conn
	by *cutter
}

// take returns how many of n bytes may pass, and breaks the connection if these are not all.
func (c *cut) take(n int) int {
	if c.by.used.Load() {
		return n
	}
	if left := c.by.left.Add(-int64(n)); left < 0 && c.by.used.CompareAndSwap(false, true) {
		return n + int(left)
	}
	return n
}

func (c *cut) Write(p []byte) (int, error) {
	pass := c.take(len(p))
	n, err := c.Conn.Write(p[:max(pass, 0)])
	if err == nil && pass < len(p) {
		c.Conn.Close()
		return n, net.ErrClosed
	}
	return n, err
}

func (c *cut) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if pass := c.take(n); pass < n {
		c.Conn.Close()
		return max(pass, 0), net.ErrClosed
	}
	return n, err
}

// A connection that breaks at any byte of a call leaves one booking, and the caller gets its seat.
func TestClient_BooksOnceThroughACutAtAnyByte(t *testing.T) {
	t.Parallel()
	a := newAgency(t, nil)
	whole := 4096 // more than the bytes of a call in both directions
	step := 1
	if testing.Short() {
		step = 61
	}
	cuts := 0
	for at := 0; at < whole; at += step {
		by := &cutter{}
		by.used.Store(true)
		transport := &http.Transport{DialContext: by.dial}
		c := a.client(&http.Client{Transport: transport})
		session, err := c.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		connected := c.Connect
		c.Connect = func(ctx context.Context) (*mcp.ClientSession, error) {
			if first := session; first != nil {
				session = nil
				return first, nil
			}
			return connected(ctx)
		}
		before := a.bookings()
		by.left.Store(int64(at))
		by.used.Store(false)
		result, err := c.CallTool(t.Context(), call("Rome"))
		broke := by.used.Load()
		by.used.Store(true)
		if after := a.bookings(); err != nil || result.IsError || after != before+1 {
			t.Fatalf("cut at byte %d: error %v, %d bookings by one call", at, err, after-before)
		}
		_ = c.Close()
		transport.CloseIdleConnections()
		if !broke {
			break
		}
		cuts++
	}
	t.Logf("%d cuts", cuts)
	if cuts < 10 {
		t.Errorf("only %d cuts", cuts)
	}
}

// withHeader adds a key to each request.
type withHeader struct{}

func (withHeader) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set(idemmcp.KeyHeader, "of-the-header")
	return http.DefaultTransport.RoundTrip(req)
}

func TestMiddleware_TakesTheKeyOfTheHTTPHeader(t *testing.T) {
	t.Parallel()
	a := newAgency(t, nil)
	session, err := a.client(&http.Client{Transport: withHeader{}}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for i, want := range []string{`{"seat":1}, error false, replayed <nil>`, `{"seat":1}, error false, replayed true`} {
		if got := text(session.CallTool(t.Context(), call("Rome"))); got != want {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
	}
}

func TestNew_RejectsAnInvalidConfig(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	scope := func(context.Context, *mcp.CallToolRequest) (string, error) { return "s", nil }
	tools := func(s idemmcp.Source) map[string]idemmcp.Source { return map[string]idemmcp.Source{"book": s} }
	for name, config := range map[string]idemmcp.Config{
		"no scope":          {Tools: tools(idemmcp.FromClient())},
		"no tools":          {Scope: scope},
		"no argument":       {Scope: scope, Tools: tools(idemmcp.FromArgument(""))},
		"no duration":       {Scope: scope, Tools: tools(idemmcp.FromArguments(0))},
		"an invalid option": {Scope: scope, Tools: tools(idemmcp.FromClient()), Options: []idem.Option{idem.WithTTL(-1)}},
	} {
		if _, err := idemmcp.New(pool, config); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := idemmcp.New(nil, idemmcp.Config{Scope: scope, Tools: tools(idemmcp.FromClient())}); err == nil {
		t.Error("no pool: accepted")
	}
}

// Two callers that use the same key do not share a result, and neither do two tools of a caller.
func TestScope_SeparatesToolsAndCallers(t *testing.T) {
	t.Parallel()
	caller := "ann"
	a := newAgency(t, func(c *idemmcp.Config) {
		c.Tools["look"] = idemmcp.FromClient()
		c.Scope = func(_ context.Context, req *mcp.CallToolRequest) (string, error) {
			if caller == "" {
				return "", errors.New("who is it?")
			}
			return caller, nil
		}
	})
	c, ctx := a.client(nil), idemmcp.WithKey(t.Context(), "k")
	for i, step := range []struct{ caller, want string }{
		{"ann", `{"seat":1}, error false, replayed <nil>`},
		{"bob", `{"seat":2}, error false, replayed <nil>`},
		{"ann", `{"seat":1}, error false, replayed true`},
		{"", "refused: "},
	} {
		caller = step.caller
		if got := text(c.CallTool(ctx, call("Rome"))); got != step.want {
			t.Errorf("call %d: %s, want %s", i, got, step.want)
		}
	}
	caller = "ann"
	if got := text(c.CallTool(ctx, &mcp.CallToolParams{Name: "look", Arguments: trip{To: "Rome"}})); got != "refused: IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("another tool: %s", got)
	}
}

func TestClient_LongBackoffsHaveALimit(t *testing.T) {
	t.Parallel()
	client := &idemmcp.Client{MinBackoff: time.Minute, MaxBackoff: time.Hour}
	for retry := range 100 { // a shift of a minute overflows at 28
		if pause := idemmcp.Backoff(client, retry); pause < 0 || pause > time.Hour {
			t.Errorf("retry %d: %v", retry, pause)
		}
	}
}
