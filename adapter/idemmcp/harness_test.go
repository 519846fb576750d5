package idemmcp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/idemmcp"
	"github.com/idem-go/idem/lab/pgtest"
)

// agency is an MCP server over HTTP whose tools book seats, each as a row.
type agency struct {
	t    *testing.T
	pool *pgxpool.Pool
	url  string
	then func(ctx context.Context) error // runs in the handler after its write; may be nil
	runs int
}

type trip struct {
	To   string            `json:"to"`
	Meta map[string]string `json:"meta,omitempty"`
}

type booked struct {
	Seat int `json:"seat"`
}

func newAgency(t *testing.T, change func(*idemmcp.Config)) *agency {
	t.Helper()
	a := &agency{t: t, pool: pgtest.New(t)}
	if _, err := a.pool.Exec(t.Context(), `CREATE TABLE bookings (seat serial, destination text)`); err != nil {
		t.Fatal(err)
	}
	config := idemmcp.Config{
		Scope: func(_ context.Context, req *mcp.CallToolRequest) (string, error) {
			return idem.Scope("shop", req.Params.Name), nil
		},
		Tools: map[string]idemmcp.Source{"book": idemmcp.FromClient()},
	}
	if change != nil {
		change(&config)
	}
	keyed, err := idemmcp.New(a.pool, config)
	if err != nil {
		t.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "agency", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "book"}, a.book)
	mcp.AddTool(server, &mcp.Tool{Name: "look"}, func(context.Context, *mcp.CallToolRequest, trip) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
	server.AddReceivingMiddleware(keyed.Middleware)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	a.url = web.URL
	return a
}

func (a *agency) book(ctx context.Context, _ *mcp.CallToolRequest, in trip) (*mcp.CallToolResult, booked, error) {
	a.runs++
	var out booked
	if err := idemmcp.Tx(ctx).QueryRow(ctx, `INSERT INTO bookings (destination) VALUES ($1) RETURNING seat`, in.To).Scan(&out.Seat); err != nil {
		return nil, out, err
	}
	if a.then != nil {
		if err := a.then(ctx); err != nil {
			return nil, out, err
		}
	}
	return nil, out, nil
}

// bookings returns how many seats are booked.
func (a *agency) bookings() int {
	a.t.Helper()
	var n int
	if err := a.pool.QueryRow(context.WithoutCancel(a.t.Context()), `SELECT count(*) FROM bookings`).Scan(&n); err != nil {
		a.t.Fatal(err)
	}
	return n
}

// client returns a Client whose connections are made by this http.Client.
func (a *agency) client(web *http.Client) *idemmcp.Client {
	c := &idemmcp.Client{
		MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Connect: func(ctx context.Context) (*mcp.ClientSession, error) {
			client := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
			return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: a.url, HTTPClient: web, MaxRetries: -1, DisableStandaloneSSE: true}, nil)
		},
	}
	a.t.Cleanup(func() { _ = c.Close() })
	return c
}

func call(to string) *mcp.CallToolParams {
	return &mcp.CallToolParams{Name: "book", Arguments: map[string]any{"to": to}}
}

// text describes a result.
func text(result *mcp.CallToolResult, err error) string {
	if err != nil {
		refusal, _ := idemmcp.RefusalOf(err)
		return fmt.Sprintf("refused: %s", refusal.Reason)
	}
	content := result.Content[0].(*mcp.TextContent).Text
	return fmt.Sprintf("%s, error %t, replayed %v", content, result.IsError, result.Meta[idemmcp.ReplayedMeta])
}
