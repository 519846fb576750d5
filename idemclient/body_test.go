package idemclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/idemclient"
)

// closing is a body without GetBody.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// wired is the body of a request as a real server gets it.
type wired struct {
	Body             string
	Length           int64
	TransferEncoding []string
	Trailer          http.Header
}

func TestBody_IsTheSameInEveryAttempt(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 100_000)
	for _, row := range []struct {
		name string
		make func(t *testing.T, url string) *http.Request
		want wired
	}{
		{"with GetBody", func(t *testing.T, url string) *http.Request {
			return request(t, t.Context(), "POST", url, strings.NewReader(long))
		}, wired{Body: long, Length: int64(len(long))}},
		{"empty", func(t *testing.T, url string) *http.Request {
			return request(t, t.Context(), "POST", url, nil)
		}, wired{}},
		{"NoBody", func(t *testing.T, url string) *http.Request {
			return request(t, t.Context(), "POST", url, http.NoBody)
		}, wired{}},
		{"of unknown length", func(t *testing.T, url string) *http.Request {
			return request(t, t.Context(), "POST", url, &closing{Reader: strings.NewReader(long)})
		}, wired{Body: long, Length: -1, TransferEncoding: []string{"chunked"}}},
		{"of known length", func(t *testing.T, url string) *http.Request {
			req := request(t, t.Context(), "POST", url, &closing{Reader: strings.NewReader(long)})
			req.ContentLength = int64(len(long))
			return req
		}, wired{Body: long, Length: int64(len(long))}},
		{"with a trailer", func(t *testing.T, url string) *http.Request {
			req := request(t, t.Context(), "POST", url, nil)
			req.Trailer = http.Header{"Checksum": nil}
			req.Body = &closing{Reader: io.MultiReader(strings.NewReader(order), onRead(func() { req.Trailer.Set("Checksum", "42") }))}
			req.ContentLength = -1
			return req
		}, wired{Body: order, Length: -1, TransferEncoding: []string{"chunked"}, Trailer: http.Header{"Checksum": {"42"}}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var got []wired
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				got = append(got, wired{string(body), r.ContentLength, r.TransferEncoding, r.Trailer})
				switch len(got) {
				case 1:
					w.WriteHeader(http.StatusServiceUnavailable)
				case 2:
					panic(http.ErrAbortHandler)
				}
			}))
			defer server.Close()
			transport := &idemclient.Transport{Base: server.Client().Transport, MinBackoff: time.Millisecond, AttemptTimeout: -1, MaxElapsed: -1}
			call(t, transport.RoundTrip, row.make(t, server.URL))
			if diff := cmp.Diff([]wired{row.want, row.want, row.want}, got); diff != "" {
				t.Errorf("the attempts differ (-want +got):\n%s", diff)
			}
		})
	}
}

// onRead is an empty reader that reports the first Read.
type onRead func()

func (f onRead) Read([]byte) (int, error) { f(); return 0, io.EOF }

func TestBody_TooLargeForTheBufferIsSentOnce(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2000)
	for _, row := range []struct {
		name   string
		limit  int64
		length int64
		ahead  bool // it is read before it is sent, because it may be short
	}{
		{"of unknown length", 1000, 0, true},
		{"longer than the buffer", 1000, 2000, false},
		{"a little longer than the buffer", 1999, 2000, false},
		{"to be streamed", -1, 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server, observed := &script{answers: []answer{document(503, "", "busy")}}, &observer{}
			sending := false
			body := &closing{Reader: io.MultiReader(onRead(func() {
				if !sending && !row.ahead {
					t.Error("it is read before it is sent")
				}
			}), strings.NewReader(long))}
			req := request(t, t.Context(), "POST", somewhere, body)
			req.ContentLength = row.length
			base := roundTripper(func(req *http.Request) (*http.Response, error) { sending = true; return server.RoundTrip(req) })
			resp := call(t, (&idemclient.Transport{Base: base, MaxBuffer: row.limit, Observe: observed.observe}).RoundTrip, req)
			if text := finish(t, resp); text != "busy" || observed.last(t).Stop != idemclient.StopBody {
				t.Errorf("body %q, stopped because of %q", text, observed.last(t).Stop)
			}
			got := server.requests()
			if len(got) != 1 || got[0].Body != long || !body.closed {
				t.Errorf("%d requests, the first with %d bytes; body closed: %t", len(got), len(got[0].Body), body.closed)
			}
		})
	}
}

func TestBody_FailedRewindReturnsTheLastResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, observed := &script{answers: []answer{document(503, "", "busy")}}, &observer{}
		req := post(t, t.Context(), somewhere)
		req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("the file is gone") }
		resp := call(t, (&idemclient.Transport{Base: server, Observe: observed.observe}).RoundTrip, req)
		if text := finish(t, resp); text != "busy" || observed.last(t).Stop != idemclient.StopBody || len(server.requests()) != 1 {
			t.Errorf("body %q, %d requests, stopped because of %q", text, len(server.requests()), observed.last(t).Stop)
		}
	})
}

func TestBody_ReadErrorFailsBeforeSending(t *testing.T) {
	t.Parallel()
	server := &script{answers: []answer{status(200)}}
	broken := errors.New("the disk is on fire")
	body := &closing{Reader: io.MultiReader(strings.NewReader("half"), failingReader{broken})}
	_, err := (&idemclient.Transport{Base: server}).RoundTrip(request(t, t.Context(), "POST", somewhere, body))
	var stopped *idemclient.Error
	if !errors.As(err, &stopped) || stopped.Stop != idemclient.StopBody || !errors.Is(err, broken) {
		t.Errorf("error %v, want the cause with StopBody", err)
	}
	if len(server.requests()) != 0 || !body.closed {
		t.Errorf("%d requests, body closed: %t", len(server.requests()), body.closed)
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func TestBody_ContextEndsTheBuffering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		reading, _ := io.Pipe()
		server := &script{answers: []answer{status(200)}}
		body := joinedBody{io.MultiReader(strings.NewReader("{"), reading), reading}
		time.AfterFunc(time.Second, cancel) // when the call has read all there is, and waits
		_, err := (&idemclient.Transport{Base: server}).RoundTrip(request(t, ctx, "POST", somewhere, body))
		if !errors.Is(err, context.Canceled) || len(server.requests()) != 0 {
			t.Errorf("error %v, %d requests", err, len(server.requests()))
		}
	})
}

type joinedBody struct {
	io.Reader
	io.Closer
}

func TestTransport_DoesNotRetryAnInvalidRequest(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	defer server.Close()
	for name, spoil := range map[string]func(*http.Request){
		"unsupported scheme": func(r *http.Request) { r.URL.Scheme = "gopher" },
		"no scheme":          func(r *http.Request) { r.URL.Scheme = "" },
		"no host":            func(r *http.Request) { r.URL.Host = "" },
		"no URL":             func(r *http.Request) { r.URL = nil },
		"header name":        func(r *http.Request) { r.Header["Not a token"] = []string{"x"} },
		"header value":       func(r *http.Request) { r.Header.Set("X-Note", "a\nb") },
		"method":             func(r *http.Request) { r.Method = "P O S T"; r.Header.Set("Idempotency-Key", "k") },
		"body too short":     func(r *http.Request) { r.ContentLength += 5 },
		"body too long":      func(r *http.Request) { r.ContentLength -= 5 },
		"buffered body too long": func(r *http.Request) {
			r.Body, r.GetBody, r.ContentLength = &closing{Reader: strings.NewReader(order)}, nil, 5
		},
		"body that fails": func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) {
				return &closing{Reader: io.MultiReader(strings.NewReader("{"), failingReader{errors.New("gone")})}, nil
			}
			r.Body, _ = r.GetBody()
		},
		"body of unknown length that fails": func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) {
				return &closing{Reader: io.MultiReader(strings.NewReader("{"), failingReader{errors.New("gone")})}, nil
			}
			r.Body, _ = r.GetBody()
			r.ContentLength = -1
		},
	} {
		t.Run(name, func(t *testing.T) {
			observed := &observer{}
			transport := &idemclient.Transport{Base: server.Client().Transport, MinBackoff: time.Millisecond, AttemptTimeout: -1, MaxElapsed: -1, Observe: observed.observe}
			req := post(t, t.Context(), server.URL)
			spoil(req)
			resp, err := transport.RoundTrip(req)
			if err == nil {
				resp.Body.Close()
				t.Fatal("the request was not refused")
			}
			stop := observed.last(t).Stop
			if attempts := len(observed.all()); attempts != 1 || stop != idemclient.StopPermanent && stop != idemclient.StopBody {
				t.Errorf("%d attempts, stopped because of %q: %v", attempts, stop, err)
			}
		})
	}
}

// bodies are those that a request has opened.
type bodies struct{ opened []*closing }

func (b *bodies) open() (io.ReadCloser, error) {
	b.opened = append(b.opened, &closing{Reader: strings.NewReader(order)})
	return b.opened[len(b.opened)-1], nil
}

// request returns a request with the first of them.
func (b *bodies) request(t *testing.T, ctx context.Context) *http.Request {
	req := post(t, ctx, somewhere)
	req.Body, _ = b.open()
	req.GetBody = b.open
	return req
}

func TestBody_EveryOpenedBodyIsClosed(t *testing.T) {
	t.Parallel()
	for name, burst := range map[string]int{"ended in the pause": 10, "refused by the budget": 2} {
		bubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			server, opened := &script{answers: []answer{status(503), failure(io.EOF), status(503)}}, &bodies{}
			transport := &idemclient.Transport{Base: server, RetryRatio: -1, RetryBurst: burst, Observe: func(_ context.Context, a idemclient.Attempt) {
				if a.Number == 3 {
					cancel() // in the pause, when the body of the next attempt is open, if there is one
				}
			}}
			resp, err := transport.RoundTrip(opened.request(t, ctx))
			if err == nil {
				resp.Body.Close()
			}
			if (err == nil) != (burst == 2) || len(server.requests()) != 3 || len(opened.opened) != 5 {
				t.Fatalf("error %v after %d requests with %d bodies", err, len(server.requests()), len(opened.opened))
			}
			for i, body := range opened.opened {
				if !body.closed {
					t.Errorf("body %d of %d was left open", i+1, len(opened.opened))
				}
			}
		})
	}
}
