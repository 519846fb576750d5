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

// Client calls tools. It sends a call again, under the same key, until the server has executed the
// call or refused it for good, or the attempts are used up. After a session has failed, the Client
// opens another session. It sends the key in _meta and not in the arguments, so the model neither
// sees nor invents the key. A Client is safe for concurrent use.
type Client struct {
	// Connect opens a session. The Client calls Connect before the first call of a tool, and again
	// after a session has failed. The context of Connect is never canceled, because some transports
	// end the session when that context ends. Limit the time of Connect by other means, such as the
	// timeouts of the transport.
	Connect func(context.Context) (*mcp.ClientSession, error)

	// MaxAttempts is the maximum number of attempts of a call, including the first one. The default
	// is 5.
	MaxAttempts int

	// AttemptTimeout is the timeout of one attempt, including the wait for Connect. The default is
	// 30 seconds.
	AttemptTimeout time.Duration

	// MinBackoff and MaxBackoff determine the backoff before retry n, counted from 0: a random time
	// between 0 and min(MaxBackoff, MinBackoff·2ⁿ). The delay that the server asks for, at most a
	// minute, is added. The defaults are 250 milliseconds and 10 seconds.
	MinBackoff, MaxBackoff time.Duration

	mu         sync.Mutex
	session    *mcp.ClientSession
	connecting *connecting // nil unless Connect is in progress
}

// connecting is a call of Connect in progress. All attempts without a session wait for its end.
type connecting struct {
	done   chan struct{} // closed when err is set
	err    error
	closed bool // Client.Close was called while Connect was in progress
}

type keyKey struct{}

// WithKey returns a context that gives the key to the calls of CallTool with this context. Use a
// key that a restarted process computes again, such as the ID of the conversation together with the
// number of the step. Without WithKey, each call gets a random key.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyKey{}, key)
}

// CallTool calls a tool, with retries: see [Client]. It uses the key in params.Meta, or else the
// key of [WithKey], or else a random key. CallTool returns the error of the last attempt. If that
// error has a [Refusal] with Retryable false and a reason other than [Broken], the call was not
// executed. After any other error, the call may have been executed: call again with the same key.
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

// attempt sends the call once. If no answer arrives, attempt drops the session, because the session
// may have failed. It keeps the session if the caller ended the call, or if the transport refused
// only this request.
func (c *Client) attempt(callerCtx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(callerCtx, cmp.Or(c.AttemptTimeout, 30*time.Second))
	defer cancel()
	session, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	sent := *params // session.CallTool writes to the _meta of its argument
	sent.Meta = maps.Clone(params.Meta)
	result, err := session.CallTool(ctx, &sent)
	if err != nil && callerCtx.Err() == nil && !isAnswer(err) && !isRejected(err) {
		c.drop(session)
	}
	return result, err
}

// connected returns the session, and opens one if there is none. Concurrent attempts share one call
// of Connect.
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

// drop closes a session that has failed. Another attempt may already have replaced the session in
// c. To close a session takes until all its calls have ended, so drop does not wait for that.
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
	if least := cmp.Or(c.MinBackoff, 250*time.Millisecond); least < limit>>retry { // least<<retry could overflow
		limit = least << retry
	}
	return rand.N(limit + 1)
}

// Codes of errors that the SDK of the client returns as a *jsonrpc.Error, although the server has
// not answered.
const (
	codeClientClosing = -32003 // the session has ended
	codeServerClosing = -32004 // the session has ended
	codeRejected      = -32005 // the transport refused one request; the session is intact
)

// isAnswer reports whether err is an answer of the server, and not an error of the SDK.
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
