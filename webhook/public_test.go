package webhook_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/webhook"
)

func TestIsPublic(t *testing.T) {
	t.Parallel()
	for _, address := range strings.Fields(`
		0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.8.8.8 169.254.169.254 172.16.0.1 172.31.255.255
		192.0.0.8 192.0.2.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255
		:: ::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1 64:ff9b::7f00:1 64:ff9b:1::1 100::1 fc00::1 fd00:ec2::254
		fe80::1 fe80::1%eth0 fec0::1 ff02::1 2001::1 2001:db8::1 2002:7f00:1::1 2002:a00:1:: 3fff::1 2600::1%eth0 4000::1 5f00::1`) {
		if webhook.IsPublic(address) {
			t.Errorf("%s is taken for a public address", address)
		}
	}
	for _, address := range strings.Fields(`
		1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 169.253.255.255 172.15.255.255 172.32.0.0
		192.0.1.1 192.167.255.255 198.17.255.255 198.20.0.0 223.255.255.255 ::ffff:8.8.8.8 2001:4860:4860::8888 2606:4700::1111 2a00:1450::1`) {
		if !webhook.IsPublic(address) {
			t.Errorf("%s is not taken for a public address", address)
		}
	}
}

// The test uses names and addresses of the machine itself.
func TestPublicTransport_RefusesLocalAddresses(t *testing.T) {
	t.Parallel()
	reached := func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }
	secure, plain := httptest.NewTLSServer(http.HandlerFunc(reached)), httptest.NewServer(http.HandlerFunc(reached))
	t.Cleanup(secure.Close)
	t.Cleanup(plain.Close)
	_, port, _ := strings.Cut(secure.Listener.Addr().String(), ":")
	for _, url := range []string{
		secure.URL, plain.URL, "https://localhost:" + port, "https://[::1]:" + port, "https://[::ffff:127.0.0.1]:" + port, "https://2130706433:" + port,
		"https://0x7f.1:" + port, "https://0:" + port, "http://example.com", "ftp://example.com", "file:///etc/passwd", "https://user:secret@127.0.0.1:" + port,
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			p, err := webhook.NewPublisher(webhook.PublisherConfig{Endpoint: func(context.Context, string) (webhook.Endpoint, error) {
				return webhook.Endpoint{URL: url, Secrets: []string{standardSecret}}, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			err = p.Publish(t.Context(), []outbox.Message{message("t", "k", 1)})
			failed := wantFailed(t, err, "t/k/1")["t/k/1"]
			// These names may not resolve, and there may be no IPv6. Then no connection is tried.
			untried := strings.Contains(url, "2130706433") || strings.Contains(url, "0x7f") || strings.Contains(url, "//0:") || strings.Contains(url, "[::1]")
			if !untried && !errors.Is(failed, webhook.ErrNotPublic) || strings.Contains(failed.Error(), "secret") {
				t.Error(failed)
			}
		})
	}
}

// Without PublicTransport the same request arrives, so the test above would fail without its check.
func TestPublisher_UsesTheGivenBase(t *testing.T) {
	t.Parallel()
	came := make(chan struct{}, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came <- struct{}{} }))
	t.Cleanup(server.Close)
	base := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}
	t.Cleanup(base.CloseIdleConnections)
	p := newPublisher(t, map[string]webhook.Endpoint{"t": {URL: server.URL, Secrets: []string{standardSecret}}}, func(c *webhook.PublisherConfig) { c.Base = base })
	if err := p.Publish(t.Context(), []outbox.Message{message("t", "k", 1)}); err != nil {
		t.Fatal(err)
	}
	<-came
}
