package outboxtest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem/outbox"
)

// unusualTexts are keys, types and values of headers that Add accepts.
var unusualTexts = []string{
	" ", " a b ", "a\r\nb: c", "\n", "\t", "%00%2F", "a/b\\c", "..", "a.b.*.>", `"'<&;`, "ключ", "ü\u200d", "\x01\x7f", strings.Repeat("k", 255), "{}", "null", "=?UTF-8?B?YQ==?=",
}

// unusualHeaders are names of headers, some of which have a meaning for a broker.
var unusualHeaders = []string{
	"", " ", "a b", "a:b", "A\r\nB", "ключ", "tenant", "TENANT", "id", "ID", "key", "type", "topic", "message-id", "idem-key", "Idem-Key", "idem-type", "Idem-Type",
	"idem-id", "Nats-Msg-Id", "nats-rollup", "webhook-id", "Webhook-Signature", "Idempotency-Key", "Host", "Content-Length", "Content-Type", "Transfer-Encoding",
	"Connection", "x-death", "x-delivery-count", "CC", "BCC", "_watermill_message_uuid", strings.Repeat("h", 256),
}

// unusualTopics are topics that do not exist, or that have a meaning for a broker.
var unusualTopics = []string{
	" ", "*", ">", "#", "..", "a b", "a\r\nb", "/", "$SYS.x", "$JS.API.STREAM.LIST", "_INBOX.x", "__consumer_offsets", "amq.direct", "ключ", strings.Repeat("t", 255),
}

// unusualContents publishes messages with unusual contents, each in a separate call. A message that
// the Publisher does not refuse must arrive unchanged. No accepted message may be lost because of a
// later one.
func unusualContents(t testing.TB, s Suite) {
	a := s.open(t)
	var strange []outbox.Message
	for _, text := range unusualTexts {
		key, kind, header := a.message(text), a.message("a"), a.message("a")
		kind.Type, header.Headers = text, map[string]string{"Tenant": text}
		strange = append(strange, key, kind, header)
	}
	for _, name := range unusualHeaders {
		m := a.message("")
		m.Type, m.Headers = "", map[string]string{name: "its own"}
		strange = append(strange, m)
	}
	empty, twice := a.message("a"), a.message("a")
	empty.Headers, twice.Headers = map[string]string{"Tenant": ""}, map[string]string{"Tenant": "7", "tenant": "8"}
	var taken []outbox.Message
	for _, m := range append(strange, empty, twice) {
		ctx, cancel := context.WithTimeout(t.Context(), a.timeout)
		given := m
		given.Headers = maps.Clone(m.Headers)
		if a.call(ctx, given) == nil {
			taken = append(taken, m)
		}
		cancel()
	}
	for _, topic := range unusualTopics {
		m := a.message("a")
		m.Topic = topic
		ctx, cancel := context.WithTimeout(t.Context(), a.timeout)
		_ = a.call(ctx, m)
		if ctx.Err() != nil {
			t.Errorf("Publish does not return for the topic %.20q", topic)
		}
		cancel()
	}
	t.Logf("%d of %d unusual messages are accepted, the others are refused", len(taken), len(strange)+2)
	a.await(taken...)
	a.settle()
	for _, m := range taken {
		a.same(m)
	}
	a.unexpected(slices.Concat(strange, []outbox.Message{empty, twice})...)
}
