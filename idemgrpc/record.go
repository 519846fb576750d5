package idemgrpc

import (
	"fmt"
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem"
)

// typeHeader is the field of a record that names the message in its body.
const typeHeader = "grpc-message-type"

// recordReply returns a reply as it is recorded.
func recordReply(m *method, reply any) (idem.Response, error) {
	message, err := message("reply", m, reply)
	if err != nil {
		return idem.Response{}, err
	}
	name := message.ProtoReflect().Descriptor().FullName()
	if want := m.reply.Descriptor().FullName(); name != want {
		return idem.Response{}, fmt.Errorf("the reply of %s is %s, not %s", m.name, name, want)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	return idem.Response{Status: int(codes.OK), Header: map[string][]string{typeHeader: {string(name)}}, Body: body}, err
}

// recordStatus returns a final status as it is recorded.
func recordStatus(s *status.Status) (idem.Response, error) {
	told := s.Proto()
	told.Message = strings.ToValidUTF8(told.Message, "\uFFFD") // or it could not be encoded
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(told)
	return idem.Response{Status: int(s.Code()), Header: map[string][]string{typeHeader: {string((&spb.Status{}).ProtoReflect().Descriptor().FullName())}}, Body: body}, err
}

// replay returns what was recorded: a reply, or the error of a final status.
func replay(m *method, r *idem.Result) (reply any, said *status.Status, err error) {
	if r.Rejected {
		var recorded spb.Status
		if err := proto.Unmarshal(r.Body, &recorded); err != nil {
			return nil, nil, fmt.Errorf("a recorded status cannot be read: %w", err)
		}
		return nil, status.FromProto(&recorded), nil
	}
	want := m.reply.Descriptor().FullName()
	if named := r.Header[typeHeader]; len(named) != 1 || named[0] != string(want) {
		return nil, nil, fmt.Errorf("what is recorded is %q, and the reply of %s is %s: the method has changed, or the scope is shared with something else", named, m.name, want)
	}
	message := m.reply.New().Interface()
	if err := proto.Unmarshal(r.Body, message); err != nil {
		return nil, nil, fmt.Errorf("a recorded reply cannot be read: %w", err)
	}
	return message, nil, nil
}

// isFinal reports whether a status is one that another attempt would have as well, so that it is recorded.
func isFinal(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition, codes.OutOfRange:
		return true
	}
	return false
}
