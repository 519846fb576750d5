package unary

import (
	"slices"
	"testing"

	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// older returns the request as an older release decodes it, to which these fields are unknown.
func older(t *testing.T, missing ...string) protoreflect.MessageDescriptor {
	t.Helper()
	file := protodesc.ToFileDescriptorProto((&pb.SimpleRequest{}).ProtoReflect().Descriptor().ParentFile())
	for _, message := range file.GetMessageType() {
		message.Field = slices.DeleteFunc(message.Field, func(f *descriptorpb.FieldDescriptorProto) bool {
			return slices.Contains(missing, message.GetName()+"."+f.GetName())
		})
	}
	built, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return built.Messages().ByName("SimpleRequest")
}

// During a rollout one server knows fields that another does not, and a retry may reach either.
func TestFingerprint_AgreesBetweenReleases(t *testing.T) {
	t.Parallel()
	request := &pb.SimpleRequest{
		ResponseSize: 7, FillUsername: true, Payload: &pb.Payload{Body: []byte("teapot"), Type: 1},
		ResponseStatus: &pb.EchoStatus{Code: 5, Message: "m"}, ExpectCompressed: &pb.BoolValue{Value: true},
	}
	wire, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	server, m := &Server{}, &Method{name: "/grpc.testing.TestService/UnaryCall"}
	want, err := server.fingerprint(m, request)
	if err != nil {
		t.Fatal(err)
	}
	for _, missing := range [][]string{
		{"SimpleRequest.response_size"}, {"SimpleRequest.payload"}, {"Payload.type"}, {"EchoStatus.code", "SimpleRequest.fill_username"},
		{"SimpleRequest.response_size", "SimpleRequest.response_status", "SimpleRequest.expect_compressed"},
	} {
		known := dynamicpb.NewMessage(older(t, missing...))
		if err := proto.Unmarshal(wire, known); err != nil {
			t.Fatal(err)
		}
		if got, err := server.fingerprint(m, known); err != nil || got != want {
			t.Errorf("without %v it is another request, %v", missing, err)
		}
	}
}
