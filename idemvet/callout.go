package idemvet

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Callout reports calls to other services inside of a transaction.
var Callout = rule("idemcallout", `find calls of other services inside of a transaction of idem

What another service does is not undone with the transaction, and is done again when the function is: after a serialization failure, or by the next
attempt. A message belongs into the outbox, and a call whose answer is needed into a Call of package operation. Such a call also keeps a connection of
the pool, and the key, for as long as it takes.`,
	func(pass *analysis.Pass, b *body, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		if what := calledOut(b.calleeOf(call)); what != "" {
			pass.ReportRangef(call, "%s inside of the transaction of %s: it is not undone with it, and is done again by the next attempt. "+
				"Add a message to the outbox, or make it a Call of an operation", what, b.by)
		}
	})

// calledOut returns what kind of call f makes to another service, or "" if none is known.
func calledOut(f *types.Func) string {
	if f == nil || f.Pkg() == nil {
		return ""
	}
	path := f.Pkg().Path()
	switch {
	case isRequest(f):
		return "a request of HTTP"
	case isFunc(f, "net/smtp", "SendMail", "Mail", "Rcpt", "Data"):
		return "a mail"
	case path == "net" && strings.HasPrefix(f.Name(), "Dial"), path == "crypto/tls" && strings.HasPrefix(f.Name(), "Dial"):
		return "a connection to another server"
	case isGRPC(f):
		return "a call of gRPC"
	case isConnect(f):
		return "a call of Connect"
	}
	// A client library has many functions. Only those that send count.
	for prefix, names := range brokers {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(f.Name(), name) }) {
				return "a message to a broker"
			}
		}
	}
	for _, prefix := range services {
		if strings.HasPrefix(path, prefix) && takesContextOrCalls(f) {
			return "a call of another service"
		}
	}
	return ""
}

// isRequest reports whether f is a function of net/http that sends a request.
func isRequest(f *types.Func) bool {
	return isFunc(f, "net/http", "Get", "Post", "PostForm", "Head", "Do", "RoundTrip") && receiver(f) != "Header"
}

// brokers maps the packages of broker clients to the prefixes of the functions that send.
var brokers = map[string][]string{
	"github.com/nats-io/nats.go":                 {"Publish", "Request"},
	"github.com/rabbitmq/amqp091-go":             {"Publish"},
	"github.com/streadway/amqp":                  {"Publish"},
	"github.com/twmb/franz-go/pkg/kgo":           {"Produce", "TryProduce"},
	"github.com/segmentio/kafka-go":              {"WriteMessages"},
	"github.com/IBM/sarama":                      {"SendMessage"},
	"github.com/Shopify/sarama":                  {"SendMessage"},
	"github.com/confluentinc/confluent-kafka-go": {"Produce"},
	"github.com/ThreeDotsLabs/watermill":         {"Publish"},
	"cloud.google.com/go/pubsub":                 {"Publish"},
	"github.com/aws/aws-sdk-go-v2/service/sqs":   {"SendMessage"},
	"github.com/aws/aws-sdk-go-v2/service/sns":   {"Publish"},
	"github.com/redis/go-redis":                  {"Publish", "Set", "Incr", "Decr", "Del", "HSet", "LPush", "RPush", "XAdd", "SAdd", "ZAdd", "Expire"},
}

// services lists the packages of clients for payment and mail providers. Their exported functions
// make calls.
var services = []string{"github.com/stripe/stripe-go", "github.com/adyen/adyen-go-api-library", "github.com/sendgrid/sendgrid-go", "github.com/twilio/twilio-go"}

// takesContextOrCalls reports whether f has the name of a function that makes a call, and two
// results.
func takesContextOrCalls(f *types.Func) bool {
	for _, prefix := range []string{"New", "Create", "Confirm", "Capture", "Cancel", "Update", "Refund", "Send", "Payments", "Do"} {
		if strings.HasPrefix(f.Name(), prefix) && f.Signature().Results().Len() == 2 {
			return true
		}
	}
	return false
}

// receiver returns the type name of the receiver of f, or "".
func receiver(f *types.Func) string {
	r := f.Signature().Recv()
	if r == nil {
		return ""
	}
	_, name := named(r.Type())
	return name
}

// isGRPC reports whether f is a method of a generated gRPC client: its last parameter is
// ...grpc.CallOption.
func isGRPC(f *types.Func) bool {
	s := f.Signature()
	if !s.Variadic() {
		return false
	}
	last, ok := s.Params().At(s.Params().Len() - 1).Type().(*types.Slice)
	return ok && isNamed(last.Elem(), "google.golang.org/grpc", "CallOption")
}

// isConnect reports whether f is a method of a generated Connect client, or of connect.Client.
func isConnect(f *types.Func) bool {
	s := f.Signature()
	if s.Recv() == nil || s.Params().Len() != 2 || s.Results().Len() != 2 {
		return false
	}
	_, isInterface := s.Recv().Type().Underlying().(*types.Interface)
	path, _ := named(s.Recv().Type())
	return (isInterface || path == "connectrpc.com/connect") &&
		isNamed(s.Params().At(1).Type(), "connectrpc.com/connect", "Request") && isNamed(s.Results().At(0).Type(), "connectrpc.com/connect", "Response")
}
