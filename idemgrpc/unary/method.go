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

// Method describes an RPC method. The description comes from the generated code of its service.
type Method struct {
	name   string
	reply  protoreflect.MessageType
	level  descriptorpb.MethodOptions_IdempotencyLevel
	absent error // why the program lacks the generated code, which a replay needs; nil if the code exists
}

// Methods caches descriptions of methods. The zero value is ready to use. Methods is safe for
// concurrent use.
type Methods struct{ known sync.Map }

// Find returns the method with the given full name, such as "/shop.Orders/Create". If the program
// lacks the generated code of the method, Find returns a Method that cannot be called: Server.Do
// answers its calls with INTERNAL.
func (ms *Methods) Find(fullMethod string) *Method {
	if m, ok := ms.known.Load(fullMethod); ok {
		return m.(*Method)
	}
	m := &Method{name: fullMethod}
	if m.absent = m.describe(); m.absent != nil {
		return m // not cached: an untrusted client may send any number of unknown names
	}
	ms.known.Store(fullMethod, m)
	return m
}

// describe fills in m from the registered descriptors. It fails if the program does not include the
// generated code of the service or of the reply.
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

// MayHaveEffect is the default of Config.Methods. It returns false for methods whose
// idempotency_level is NO_SIDE_EFFECTS and for gRPC's own services, and true for all others.
func (ms *Methods) MayHaveEffect(fullMethod string) bool {
	if strings.HasPrefix(fullMethod, "/grpc.health.") || strings.HasPrefix(fullMethod, "/grpc.reflection.") || strings.HasPrefix(fullMethod, "/grpc.channelz.") {
		return false
	}
	return ms.Find(fullMethod).level != descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// requestOf returns the request m as a protobuf message. It fails if m is not a protobuf message.
func requestOf(of *Method, m any) (proto.Message, error) {
	if message, ok := m.(proto.Message); ok && message != nil && message.ProtoReflect().IsValid() {
		return message, nil
	}
	return nil, foreign("request", of, m)
}

func foreign(what string, of *Method, m any) error {
	return fmt.Errorf("the %s of %s is %T, and no message of protobuf", what, of.name, m)
}
