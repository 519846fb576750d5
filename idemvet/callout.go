package idemvet

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Callout is the analyzer that reports calls to other services inside a transaction of idem.
var Callout = rule("idemcallout", `find calls to other services inside a transaction of idem

A rollback does not undo a call to another service, and the next run of the function repeats it: after a serialization failure, or in the next
attempt. Add a message to the outbox instead. If the answer is needed, make the call a Call of package operation. Such a call also holds a connection
of the pool, and the key, until it returns.`,
	func(pass *analysis.Pass, b *body, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		if what := externalCall(b.calleeOf(call)); what != "" {
			pass.ReportRangef(call, "%s inside the transaction of %s: a rollback does not undo it, and the next attempt repeats it. "+
				"Add a message to the outbox, or make it a Call of an operation", what, b.by)
		}
	})

// externalCall describes, for a diagnostic, the call that f makes to another service. It returns ""
// if f is not known to call another service.
//
// The type of f is enough to recognize a call of HTTP, gRPC or Connect. The clients of brokers and
// payment providers also have many functions that only prepare a call. externalCall recognizes
// these clients by their import paths, and their sending functions by name.
func externalCall(f *types.Func) string {
	if f == nil || f.Pkg() == nil {
		return ""
	}
	path := f.Pkg().Path()
	switch {
	case isRequest(f):
		return "an HTTP request"
	case isFunc(f, "net/smtp", "SendMail", "Mail", "Rcpt", "Data"):
		return "an email"
	case path == "net" && strings.HasPrefix(f.Name(), "Dial"), path == "crypto/tls" && strings.HasPrefix(f.Name(), "Dial"):
		return "a connection to another server"
	case isGRPC(f):
		return "a gRPC call"
	case isConnect(f):
		return "a Connect call"
	}

	for prefix, names := range brokers {
		if (path == prefix || strings.HasPrefix(path, prefix+"/")) && hasPrefixOf(f.Name(), names) {
			return "a message to a broker"
		}
	}
	if hasPrefixOf(path, services) && isServiceCall(f) {
		return "a call to another service"
	}
	return ""
}

// isRequest reports whether f is a function of net/http that sends a request. It excludes Get of
// http.Header, which only has the name of such a function.
func isRequest(f *types.Func) bool {
	return isFunc(f, "net/http", "Get", "Post", "PostForm", "Head", "Do", "RoundTrip") && receiver(f) != "Header"
}

// brokers maps the import paths of broker clients to name prefixes of the functions that send.
// Redis is in the list, because a write to Redis cannot be rolled back either.
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

// services lists the import paths of clients for payment and mail providers. isServiceCall decides
// which of their functions make a call.
var services = []string{
	"github.com/stripe/stripe-go", "github.com/adyen/adyen-go-api-library", "github.com/sendgrid/sendgrid-go", "github.com/twilio/twilio-go",
}

// isServiceCall reports whether f, a function of a client in services, makes a call. Such a
// function has a name such as New, Create or Refund, and two results: an object and an error.
func isServiceCall(f *types.Func) bool {
	names := []string{"New", "Create", "Confirm", "Capture", "Cancel", "Update", "Refund", "Send", "Payments", "Do"}
	return f.Signature().Results().Len() == 2 && hasPrefixOf(f.Name(), names)
}

// receiver returns the type name of the receiver of f, or "" if f is not a method.
func receiver(f *types.Func) string {
	r := f.Signature().Recv()
	if r == nil {
		return ""
	}
	_, name := named(r.Type())
	return name
}

// isGRPC reports whether f is a method of a generated gRPC client. Generated clients have no common
// type or import path, but the last parameter of each method is ...grpc.CallOption.
func isGRPC(f *types.Func) bool {
	s := f.Signature()
	if !s.Variadic() {
		return false
	}
	last, ok := s.Params().At(s.Params().Len() - 1).Type().(*types.Slice)
	return ok && isNamed(last.Elem(), "google.golang.org/grpc", "CallOption")
}

// isConnect reports whether f is a method of a generated Connect client, or of connect.Client. A
// generated client is an interface. A Connect handler has the same parameters, but as a method of a
// struct, and does not count.
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
