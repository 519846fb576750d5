package idemmcp

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem/idemclient"
)

// Client calls tools. It sends a call again, under the same key, until there is an answer or the
// attempts are used up, and opens another session after one has failed. The key is not part of the
// arguments, so the model neither sees it nor makes it up. A Client is safe for concurrent use.
type Client struct {
	// Connect opens a session. It is called for the first call, and again after a session failed.
	Connect func(context.Context) (*mcp.ClientSession, error)

	// MaxAttempts is the maximum number of attempts of a call, including the first one. The default
	// is 5.
	MaxAttempts int

	// AttemptTimeout is the timeout of one attempt, connecting included. The default is 30 seconds.
	AttemptTimeout time.Duration

	// MinBackoff and MaxBackoff determine the backoff before retry n, counted from 0: a random time
	// between 0 and min(MaxBackoff, MinBackoff·2ⁿ), in addition to the delay that the server asks
	// for. The defaults are 250 milliseconds and 10 seconds.
	MinBackoff, MaxBackoff time.Duration

	mu      sync.Mutex
	session *mcp.ClientSession
}

type keyKey struct{}

// WithKey returns a context whose calls have the given key. Use a key that outlives the process,
// such as the ID of the conversation together with the number of the step. Without it, each call
// gets a random key.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyKey{}, key)
}

// CallTool calls a tool until there is an answer. The key is the one in params.Meta, that of
// [WithKey], or a random one. CallTool returns the error of the last attempt. The call was not
// executed if that error has a [Refusal] that is not retryable, other than [Broken]. After any other
// error it may have been executed: call again with the same key.
func (c *Client) CallTool(ctx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	keyed := *params
	keyed.Meta = maps.Clone(params.Meta)
	if keyed.Meta == nil {
		keyed.Meta = mcp.Meta{}
	}
	if keyed.Meta[KeyMeta] == nil {
		key, ok := ctx.Value(keyKey{}).(string)
		if !ok {
			key = idemclient.NewKey()
		}
		keyed.Meta[KeyMeta] = key
	}
	for attempt := 1; ; attempt++ {
		result, err := c.attempt(ctx, &keyed)
		if err == nil || ctx.Err() != nil || attempt >= cmp.Or(c.MaxAttempts, 5) || isFinal(err) {
			return result, err
		}
		refusal, _ := RefusalOf(err)
		select {
		case <-time.After(c.backoff(attempt-1) + time.Duration(refusal.RetryAfterMS)*time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

// attempt sends the call once. It drops the session if the call got no answer on it.
func (c *Client) attempt(ctx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.AttemptTimeout, 30*time.Second))
	defer cancel()
	session, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	sent := *params // the session adds to the _meta of a call
	sent.Meta = maps.Clone(params.Meta)
	result, err := session.CallTool(ctx, &sent)
	if err != nil && !isAnswer(err) && !isRejected(err) {
		c.drop(session)
	}
	return result, err
}

// connected returns the session, and opens one if there is none.
func (c *Client) connected(ctx context.Context) (*mcp.ClientSession, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		session, err := c.Connect(ctx)
		if err != nil {
			return nil, err
		}
		c.session = session
	}
	return c.session, nil
}

// drop closes a session that has failed. Other calls may have replaced it already.
func (c *Client) drop(failed *mcp.ClientSession) {
	c.mu.Lock()
	if c.session == failed {
		c.session = nil
	}
	c.mu.Unlock()
	_ = failed.Close()
}

// Close closes the session. A later call opens another one.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil
	}
	session := c.session
	c.session = nil
	return session.Close()
}

func (c *Client) backoff(retry int) time.Duration {
	limit := cmp.Or(c.MaxBackoff, 10*time.Second)
	if least := cmp.Or(c.MinBackoff, 250*time.Millisecond); retry < 30 && least<<retry < limit {
		limit = least << retry
	}
	return rand.N(limit + 1)
}

// Codes of errors that the SDK itself makes, in the form of an answer.
const (
	codeClientClosing = -32003 // the session has ended
	codeServerClosing = -32004 // the session has ended
	codeRejected      = -32005 // the transport refused one request; the session is intact
)

// isAnswer reports whether err is an answer of the server.
func isAnswer(err error) bool {
	answer, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && answer.Code != codeClientClosing && answer.Code != codeServerClosing && answer.Code != codeRejected
}

func isRejected(err error) bool {
	answer, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && answer.Code == codeRejected
}

// isFinal reports whether the call is not sent again: the server answered, and not with a refusal
// that is retryable.
func isFinal(err error) bool {
	if !isAnswer(err) {
		return false
	}
	refusal, ok := RefusalOf(err)
	return !ok || !refusal.Retryable
}
