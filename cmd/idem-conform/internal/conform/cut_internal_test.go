package conform

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

// The server receives each request whose connection is cut, although net/http reports a request as
// written while it is in a buffer.
func TestCut_ComesAfterTheRequest(t *testing.T) {
	t.Parallel()
	const requests = 20
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan string, requests)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(r.Body); err == nil {
					arrived <- r.Header.Get(keyField)
				}
				<-r.Context().Done()
			}))
			server.EnableHTTP2 = http2
			if http2 {
				server.StartTLS()
			} else {
				server.Start()
			}
			t.Cleanup(server.Close)
			address, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			profile, _ := Find("stripe")
			p := &probe{client: newClient(&Options{URL: address, Profile: profile, Request: Standard(), Timeout: time.Minute}), ctx: context.Background(), profile: profile}
			t.Cleanup(p.close)
			if http2 {
				p.http.Transport.(*http.Transport).TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
			}
			dial := p.dial
			p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				return slowConn{conn}, err
			}
			for range requests {
				cut := p.with(p.newKey(), p.request.body(newUnique()))
				cut.cut = true
				if a := p.send(p.ctx, cut); a.err != errCut {
					t.Fatalf("the request ended with %v", a.err)
				}
				select {
				case key := <-arrived:
					if key != cut.keys[0] {
						t.Fatal("another request came")
					}
				case <-time.After(time.Minute):
					t.Fatal("the request did not arrive")
				}
			}
		})
	}
}

// slowConn delays each write, as a busy machine does.
type slowConn struct{ net.Conn }

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(5 * time.Millisecond)
	return c.Conn.Write(b)
}
