package unary

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/code"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem"
)

// typeHeader is a header of recorded responses. Its value is the type of the message in the body.
const typeHeader = "grpc-message-type"

// recordReply returns a reply in the form in which it is recorded. A nil pointer counts as an empty
// message, as in the codecs of gRPC and Connect. recordReply fails if the type of the reply is not
// the type that the method returns.
func recordReply(m *Method, reply any) (idem.Response, error) {
	message, ok := reply.(proto.Message)
	if !ok {
		return idem.Response{}, foreign("reply", m, reply)
	}
	name := message.ProtoReflect().Descriptor().FullName()
	if want := m.reply.Descriptor().FullName(); name != want {
		return idem.Response{}, fmt.Errorf("the reply of %s is %s, not %s", m.name, name, want)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	return idem.Response{Status: int(code.Code_OK), Header: map[string][]string{typeHeader: {string(name)}}, Body: body}, err
}

// readable returns the status s if its message is valid UTF-8. Otherwise it returns a copy with a
// corrected message, because only valid UTF-8 can be encoded.
func readable(s *spb.Status) *spb.Status {
	if utf8.ValidString(s.GetMessage()) {
		return s
	}
	valid := proto.CloneOf(s)
	valid.Message = strings.ToValidUTF8(valid.Message, "\uFFFD")
	return valid
}

// recordStatus returns a final status in the form in which it is recorded.
func recordStatus(s *spb.Status) (idem.Response, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
	return idem.Response{Status: int(s.GetCode()), Header: map[string][]string{typeHeader: {string((&spb.Status{}).ProtoReflect().Descriptor().FullName())}}, Body: body}, err
}

// replay decodes a recorded response, which is a reply or a final status. It fails if the type of
// the recorded reply is not the type that the method returns.
func replay(m *Method, r *idem.Result) (reply proto.Message, said *spb.Status, err error) {
	if r.Rejected {
		var recorded spb.Status
		if err := proto.Unmarshal(r.Body, &recorded); err != nil {
			return nil, nil, fmt.Errorf("a recorded status cannot be read: %w", err)
		}
		return nil, &recorded, nil
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

// isFinal reports whether a status is final. A final status is recorded, because the same call
// would get the same status again.
func isFinal(s *spb.Status) bool {
	switch code.Code(s.GetCode()) {
	case code.Code_INVALID_ARGUMENT, code.Code_NOT_FOUND, code.Code_ALREADY_EXISTS, code.Code_PERMISSION_DENIED, code.Code_FAILED_PRECONDITION, code.Code_OUT_OF_RANGE:
		return true
	}
	return false
}
