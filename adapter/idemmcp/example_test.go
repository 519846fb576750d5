package idemmcp_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/idemmcp"
)

// flight is what the model asks for.
type flight struct {
	To string `json:"to"`
}

// A server whose tool books a flight once for each key, and a host that calls the tool through lost
// connections.
func Example() {
	ctx := context.Background()
	var pool *pgxpool.Pool // of a database with the migrations of package migrations

	keyed, err := idemmcp.New(pool, idemmcp.Config{
		Scope: func(_ context.Context, req *mcp.CallToolRequest) (string, error) {
			if req.Extra == nil || req.Extra.TokenInfo == nil {
				return "", fmt.Errorf("the call has no token")
			}
			return idem.Scope(req.Extra.TokenInfo.UserID, req.Params.Name), nil
		},
		Tools: map[string]idemmcp.Source{"book_flight": idemmcp.FromClient()},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "agency", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "book_flight"}, func(ctx context.Context, _ *mcp.CallToolRequest, in flight) (*mcp.CallToolResult, any, error) {
		_, err := idemmcp.Tx(ctx).Exec(ctx, "INSERT INTO flights (destination) VALUES ($1)", in.To)
		return nil, nil, err
	})
	server.AddReceivingMiddleware(keyed.Middleware)

	host := idemmcp.Client{Connect: func(ctx context.Context) (*mcp.ClientSession, error) {
		client := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
		return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: "https://agency.example/mcp"}, nil)
	}}
	defer host.Close()
	ctx = idemmcp.WithKey(ctx, "conversation-17/step-3") // stored by the host before it calls
	result, err := host.CallTool(ctx, &mcp.CallToolParams{Name: "book_flight", Arguments: flight{To: "Rome"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Content)
}
