package unary

import (
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Method is what is known of a method from the generated code of its service.
type Method struct {
	name   string
	reply  protoreflect.MessageType
	level  descriptorpb.MethodOptions_IdempotencyLevel
	absent error // that there is no generated code, which makes a reply that cannot be replayed
}

// Methods are those that were called. The zero value is ready, and safe for concurrent use.
type Methods struct{ known sync.Map }

// Find returns a method by its full name, such as "/shop.Orders/Create".
func (ms *Methods) Find(fullMethod string) *Method {
	if m, ok := ms.known.Load(fullMethod); ok {
		return m.(*Method)
	}
	m := &Method{name: fullMethod}
	if m.absent = m.describe(); m.absent != nil {
		return m // such names may come from strangers: they are not kept
	}
	ms.known.Store(fullMethod, m)
	return m
}

func (m *Method) describe() error {
	service, name, _ := strings.Cut(strings.TrimPrefix(m.name, "/"), "/")
	described, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return fmt.Errorf("the service %q has no generated code in this program: %w", service, err)
	}
	s, ok := described.(protoreflect.ServiceDescriptor)
	if !ok {
		return fmt.Errorf("%q is no service", service)
	}
	d := s.Methods().ByName(protoreflect.Name(name))
	if d == nil {
		return fmt.Errorf("the service %q has no method %q", service, name)
	}
	if options, ok := d.Options().(*descriptorpb.MethodOptions); ok {
		m.level = options.GetIdempotencyLevel()
	}
	m.reply, err = protoregistry.GlobalTypes.FindMessageByName(d.Output().FullName())
	if err != nil {
		return fmt.Errorf("the reply of %s, %s, has no generated code in this program: %w", m.name, d.Output().FullName(), err)
	}
	return nil
}

// MayHaveEffect is the default of Config.Methods: all but those whose idempotency_level is NO_SIDE_EFFECTS, and the services of gRPC itself.
func (ms *Methods) MayHaveEffect(fullMethod string) bool {
	if strings.HasPrefix(fullMethod, "/grpc.health.") || strings.HasPrefix(fullMethod, "/grpc.reflection.") || strings.HasPrefix(fullMethod, "/grpc.channelz.") {
		return false
	}
	return ms.Find(fullMethod).level != descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// requestOf returns what a framework calls any as a message.
func requestOf(of *Method, m any) (proto.Message, error) {
	if message, ok := m.(proto.Message); ok && message != nil && message.ProtoReflect().IsValid() {
		return message, nil
	}
	return nil, foreign("request", of, m)
}

func foreign(what string, of *Method, m any) error {
	return fmt.Errorf("the %s of %s is %T, and no message of protobuf", what, of.name, m)
}
