package idemamqp_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/idem-go/idem/adapter/idemamqp"
	"github.com/idem-go/idem/outbox"
)

func publisher(t testing.TB, url string, config idemamqp.PublisherConfig) *idemamqp.Publisher {
	t.Helper()
	p := idemamqp.NewPublisher(url, config)
	t.Cleanup(func() { p.Close() })
	return p
}

func TestPublisher_ErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for _, url := range []string{"amqp://guest:secret@" + gone.Addr().String() + "/", "amqp://guest:secret@[broken/", "amqp://guest:secret@host:port/"} {
		err := idemamqp.NewPublisher(url, idemamqp.PublisherConfig{}).Publish(within(t), []outbox.Message{message("q", "", "")})
		if err == nil || errors.Is(err, io.EOF) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
}
