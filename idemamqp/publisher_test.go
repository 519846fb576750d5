package idemamqp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/idemamqp"
	"github.com/idem-go/idem/internal/cutproxy"
	"github.com/idem-go/idem/outbox"
)

func publisher(t testing.TB, url string, config idemamqp.PublisherConfig) *idemamqp.Publisher {
	t.Helper()
	p := idemamqp.NewPublisher(url, config)
	t.Cleanup(func() { p.Close() })
	return p
}

func TestMessageArrivesWithAllThatItHas(t *testing.T) {
	t.Parallel()
	n := rabbit(t)
	q, ch := queue(t, n, nil), channel(t, n)
	m := message(q, "customer 7", "ordered")
	m.Headers = map[string]string{"traceparent": "00-a-b-01"}
	if err := publisher(t, n.url(), idemamqp.PublisherConfig{}).Publish(within(t), []outbox.Message{m}); err != nil {
		t.Fatal(err)
	}
	d, ok, err := ch.Get(q, true)
	if !ok || err != nil {
		t.Fatal("nothing is there", err)
	}
	got := outbox.Message{ID: d.MessageId, Topic: d.RoutingKey, Key: d.Headers[idemamqp.HeaderKey].(string), Type: d.Type, Payload: d.Body,
		Headers: map[string]string{"traceparent": d.Headers["traceparent"].(string)}}
	if diff := cmp.Diff(m, got); diff != "" || d.DeliveryMode != amqp.Persistent {
		t.Errorf("mode %d (-sent +received):\n%s", d.DeliveryMode, diff)
	}
}

// A relay gives up a message that is named, and goes on with the others.
func TestMessagesThatTheBrokerDoesNotTakeAreNamedAndTheOthersArrive(t *testing.T) {
	t.Parallel()
	n := rabbit(t)
	q, ch := queue(t, n, nil), channel(t, n)
	long := message(q, "e", "long name")
	long.Type = strings.Repeat("x", 256)
	messages := []outbox.Message{
		message(q, "a", "first"),
		message("nowhere."+q, "b", "no queue"),
		message(q, "c", "second"),
		message("no exchange", "d", "no exchange"),
		long,
		message(q, "a", "third"),
		message(q, "e", "behind the long name"),
		message("nowhere."+q, "", "no queue and no key"),
		message("panics", "", "panics"),
	}
	p := publisher(t, n.url(), idemamqp.PublisherConfig{Route: func(m outbox.Message) (string, string) {
		if m.Topic == "panics" {
			panic("a bug")
		}
		if m.Topic == "no exchange" {
			return "none." + q, m.Topic
		}
		return "", m.Topic
	}})
	err := p.Publish(within(t), messages)
	var named *outbox.PublishError
	if !errors.As(err, &named) {
		t.Fatal(err)
	}
	want := []string{"behind the long name", "long name", "no exchange", "no queue", "no queue and no key", "panics"}
	if diff := cmp.Diff(want, names(named.Failed, messages)); diff != "" {
		t.Errorf("named (-want +got):\n%s", diff)
	}
	arrived := map[string]bool{} // the broker closed the channel for one of them, so the others may have come twice
	for {
		d, ok, err := ch.Get(q, true)
		if err != nil || !ok {
			break
		}
		arrived[string(d.Body)] = true
	}
	if diff := cmp.Diff(map[string]bool{"first": true, "second": true, "third": true}, arrived); diff != "" {
		t.Errorf("arrived (-want +got):\n%s", diff)
	}
	if err := p.Publish(within(t), messages[:1]); err != nil {
		t.Errorf("after that: %v", err)
	}
}

func TestBrokenConnectionBlamesNoMessageAndIsOpenedAgain(t *testing.T) {
	t.Parallel()
	n := rabbit(t)
	q, ch := queue(t, n, nil), channel(t, n)
	proxy, err := cutproxy.New(fmt.Sprintf("127.0.0.1:%d", n.port))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	p := publisher(t, n.at(proxy.Addr()), idemamqp.PublisherConfig{})
	if err := p.Publish(within(t), []outbox.Message{message(q, "", "first")}); err != nil {
		t.Fatal(err)
	}
	proxy.Deafen(true)
	answer := make(chan error)
	go func() {
		answer <- p.Publish(within(t), []outbox.Message{message(q, "k", "lost"), message(q, "k", "lost")})
	}()
	var named *outbox.PublishError
	for err = error(nil); err == nil; {
		proxy.Cut()
		select {
		case err = <-answer:
		default:
		}
	}
	if errors.As(err, &named) {
		t.Errorf("a message was blamed: %v", err)
	}
	proxy.Deafen(false)
	if err := p.Publish(within(t), []outbox.Message{message(q, "", "second")}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"first", "second"}, drain(t, ch, q, 2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A broker that is short of memory reads nothing, for hours if need be.
func TestPublishEndsWithItsContext(t *testing.T) {
	t.Parallel()
	n := rabbit(t)
	q := queue(t, n, nil)
	proxy, err := cutproxy.New(fmt.Sprintf("127.0.0.1:%d", n.port))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	p := publisher(t, n.at(proxy.Addr()), idemamqp.PublisherConfig{})
	if err := p.Publish(within(t), []outbox.Message{message(q, "", "first")}); err != nil {
		t.Fatal(err)
	}
	proxy.Deafen(true)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error)
	go func() { answer <- p.Publish(ctx, []outbox.Message{message(q, "", "lost")}) }()
	cancel()
	var named *outbox.PublishError
	if err := <-answer; !errors.Is(err, context.Canceled) || errors.As(err, &named) {
		t.Error(err)
	}
}

func TestErrorsDoNotTellThePassword(t *testing.T) {
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
