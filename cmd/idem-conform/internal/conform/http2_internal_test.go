package conform

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

// A server that refuses streams above its limit has not processed them, so net/http may retry them.
func TestRefusedStreams_AreSentAgain(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) == 0 || r.ProtoMajor != 2 {
			t.Errorf("%s, body %q, %v", r.Proto, body, err)
		}
		time.Sleep(20 * time.Millisecond) // other streams arrive meanwhile, and some are refused
	}))
	server.EnableHTTP2 = true
	server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 5}
	server.StartTLS()
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	profile, _ := Find("ietf")
	p := &probe{client: newClient(&Options{URL: address, Profile: profile, Request: Standard(), Timeout: 5 * time.Minute}), ctx: context.Background(), profile: profile}
	t.Cleanup(p.close)
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	p.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: trusted}
	for _, a := range p.askAll(MaxAtOnce, p.newKey(), newUnique()) {
		if !a.ok() {
			t.Errorf("answered %d, %v", a.status, a.err)
		}
	}
}
