package outboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// payloads returns payloads that every destination must carry. The parameter is the size of the
// largest.
func payloads(most int) [][]byte {
	var every []byte
	for b := range 256 {
		every = append(every, byte(b))
	}
	large := make([]byte, most)
	for i := range large {
		large[i] = byte(rand.N(256))
	}
	return [][]byte{nil, {}, []byte(`{"sku":"teapot"}`), []byte(" \r\n\x00"), {0xff, 0xfe}, every, large}
}

var headers = []map[string]string{
	nil,
	{"Tenant": "7", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b,c=d"},
	{"X-Long": strings.Repeat("x", 1000)},
}

// arrivesOnce publishes messages with all kinds of contents, and expects that each arrives once and
// unchanged. After each call of Publish it overwrites the messages of the call, because a Publisher
// must not use them any more.
func arrivesOnce(t testing.TB, s Suite) {
	a := s.open(t)
	var sent, given []outbox.Message
	for i, payload := range payloads(a.MaxPayload) {
		for j, own := range headers {
			m := a.message([]string{"", fmt.Sprint("customer ", i, j), "ключ/ü"}[(i+j)%3])
			m.Payload, m.Headers = payload, own
			if m.Type = "Order Placed"; i == j {
				m.Type = ""
			}
			sent = append(sent, m)
			m.Payload, m.Headers = slices.Clone(payload), maps.Clone(own)
			given = append(given, m)
		}
	}
	for _, group := range groups(given) {
		a.publish(group...)
		for i := range group {
			copy(group[i].Payload, bytes.Repeat([]byte("kept"), len(group[i].Payload)/4+1))
			clear(group[i].Headers)
			group[i] = outbox.Message{}
		}
	}
	a.await(sent...)
	a.settle()
	a.times(1, sent...)
	a.unexpected(sent...)
	for _, m := range sent {
		if !a.same(m) {
			return
		}
	}
}

// groups divides messages into groups in which no two messages have the same key, as a relay does.
func groups(messages []outbox.Message) (groups [][]outbox.Message) {
	met := map[string]int{}
	for _, m := range messages {
		n := 0
		if m.Key != "" {
			n = met[m.Key]
			met[m.Key]++
		}
		if n == len(groups) {
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], m)
	}
	return groups
}

func isRepeatable(t testing.TB, s Suite) {
	a := s.open(t)
	sent := a.messages("a", "b", "")
	for range 2 {
		a.publish(sent...)
	}
	a.await(sent...)
	a.settle()
	a.unexpected(sent...)
	for _, m := range sent {
		if n := len(a.of(m.ID)); n > 2 {
			t.Errorf("a message that was published twice has arrived %d times", n)
		}
		a.same(m)
	}
}

func concurrentCalls(t testing.TB, s Suite) {
	const calls, size = 8, 20
	a := s.open(t)
	begin, sent, errs := make(chan struct{}), make([][]outbox.Message, calls), make([]error, calls)
	var wg sync.WaitGroup
	for i := range calls {
		for j := range size {
			sent[i] = append(sent[i], a.message(fmt.Sprint(i, "/", j)))
		}
		wg.Go(func() {
			<-begin
			errs[i] = a.call(t.Context(), sent[i]...)
		})
	}
	close(begin)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatalf("a concurrent call has failed: %v", err)
		}
	}
	all := slices.Concat(sent...)
	a.await(all...)
	a.settle()
	a.times(1, all...)
	a.unexpected(all...)
	for _, m := range all {
		a.same(m)
	}
}

// manyMessages is the default of RelayConfig.BatchSize.
const manyMessages = 1000

// manyArrive publishes as many messages in one call as a relay does. If the error of a call says
// that a message was not published, manyArrive publishes this message again.
func manyArrive(t testing.TB, s Suite) {
	a := s.open(t)
	var sent []outbox.Message
	for i := range manyMessages {
		sent = append(sent, a.message(fmt.Sprint("customer ", i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), a.timeout)
	defer cancel()
	for left := sent; len(left) > 0; {
		err := a.call(ctx, left...)
		if ctx.Err() != nil {
			t.Fatalf("after %v %d of %d messages are not published: %v", a.timeout, len(left), len(sent), err)
		}
		left = unpublished(left, err)
		if len(left) > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	a.await(sent...)
}

// unpublished returns the messages that a call has not published. If its error names no message,
// these are all messages of the call.
func unpublished(messages []outbox.Message, err error) []outbox.Message {
	named, ok := errors.AsType[*outbox.PublishError](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return messages
	}
	var left []outbox.Message
	for _, m := range messages {
		if _, failed := named.Failed[m.ID]; failed {
			left = append(left, m)
		}
	}
	return left
}
