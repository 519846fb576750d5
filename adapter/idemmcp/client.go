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
	// Its context is never canceled, because some transports end a session with that context: bound
	// the time of Connect by other means, such as the timeouts of the transport.
	Connect func(context.Context) (*mcp.ClientSession, error)

	// MaxAttempts is the maximum number of attempts of a call, including the first one. The default
	// is 5.
	MaxAttempts int

	// AttemptTimeout is the timeout of one attempt, with its wait for Connect. The default is 30
	// seconds.
	AttemptTimeout time.Duration

	// MinBackoff and MaxBackoff determine the backoff before retry n, counted from 0: a random time
	// between 0 and min(MaxBackoff, MinBackoff·2ⁿ), in addition to the delay that the server asks
	// for, of a minute at most. The defaults are 250 milliseconds and 10 seconds.
	MinBackoff, MaxBackoff time.Duration

	mu         sync.Mutex
	session    *mcp.ClientSession
	connecting *connecting // nil unless Connect is in progress
}

// connecting is a Connect in progress, for which all calls wait.
type connecting struct {
	done   chan struct{} // closed when err is set
	err    error
	closed bool // Close was called meanwhile
}

type keyKey struct{}

// WithKey returns a context whose calls have the given key. Use a key that outlives the process,
// such as the ID of the conversation together with the number of the step. Without it, each call
// gets a random key.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyKey{}, key)
}

// CallTool calls a tool until there is an answer. The key is the one in params.Meta, that of
// [WithKey], or a random one. CallTool returns the error of the last attempt. If that error has a
// [Refusal] with Retryable false, the call was not executed, except with the reason [Broken]. With
// that reason, and after any other error, the call may have been executed: call again with the same
// key.
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
		case <-time.After(c.backoff(attempt-1) + min(refusal.retryAfter(), time.Minute)):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

// attempt sends the call once. If the session has failed before the server answered, attempt drops
// the session. It keeps a session if the caller ended the call, or if the transport refused only
// this request.
func (c *Client) attempt(callerCtx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(callerCtx, cmp.Or(c.AttemptTimeout, 30*time.Second))
	defer cancel()
	session, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	sent := *params // the session adds to the _meta of a call
	sent.Meta = maps.Clone(params.Meta)
	result, err := session.CallTool(ctx, &sent)
	if err != nil && callerCtx.Err() == nil && !isAnswer(err) && !isRejected(err) {
		c.drop(session)
	}
	return result, err
}

// connected returns the session, and opens one if there is none. All calls share one Connect.
func (c *Client) connected(ctx context.Context) (*mcp.ClientSession, error) {
	for {
		c.mu.Lock()
		session, opening := c.session, c.connecting
		if session == nil && opening == nil {
			opening = &connecting{done: make(chan struct{})}
			c.connecting = opening
			go c.connect(context.WithoutCancel(ctx), opening)
		}
		c.mu.Unlock()
		if session != nil {
			return session, nil
		}
		select {
		case <-opening.done:
			if opening.err != nil {
				return nil, opening.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *Client) connect(ctx context.Context, opening *connecting) {
	session, err := c.Connect(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if opening.closed && err == nil {
		go session.Close()
		session = nil
	}
	c.session, c.connecting, opening.err = session, nil, err
	close(opening.done)
}

// drop closes a session that has failed. Other calls may have replaced it already. Close waits for
// all calls of the session, so drop does not wait for Close.
func (c *Client) drop(failed *mcp.ClientSession) {
	c.mu.Lock()
	if c.session == failed {
		c.session = nil
	}
	c.mu.Unlock()
	go failed.Close()
}

// Close closes the session. A later call opens another one.
func (c *Client) Close() error {
	c.mu.Lock()
	session := c.session
	c.session = nil
	if c.connecting != nil {
		c.connecting.closed = true
	}
	c.mu.Unlock()
	if session == nil {
		return nil
	}
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

// isFinal reports whether err is an answer after which the call is not sent again. That is every
// answer except a retryable refusal.
func isFinal(err error) bool {
	if !isAnswer(err) {
		return false
	}
	refusal, ok := RefusalOf(err)
	return !ok || !refusal.Retryable
}
