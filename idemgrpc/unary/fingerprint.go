package unary

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/idem-go/idem"
)

// fingerprint returns a hash of the method and the request, without the fields of Config.Without.
// Equal requests have equal hashes, and different requests have different hashes.
//
// An older release of the server may not know all fields of a request, but must compute the same
// hash as a newer release. Fields that a server does not know therefore count too, sorted among the
// known fields.
func (s *Server) fingerprint(m *Method, request proto.Message) (idem.Hash, error) {
	if len(s.without) > 0 {
		request = proto.Clone(request)
		for _, path := range s.without {
			drop(request.ProtoReflect(), path)
		}
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return idem.Hash{}, err
	}
	sorted, err := canonical(make([]byte, 0, len(encoded)), encoded, request.ProtoReflect().Descriptor())
	return idem.HashBytes([]byte("idemgrpc/1"), []byte(m.name), sorted), err
}

// paths parses the paths of Config.Without into field names.
func paths(without []string) (read [][]protoreflect.Name, err error) {
	for _, path := range without {
		var names []protoreflect.Name
		for name := range strings.SplitSeq(path, ".") {
			if !protoreflect.Name(name).IsValid() {
				return nil, fmt.Errorf("Config.Without: %q is no path of field names, such as client.sent_at", path)
			}
			names = append(names, protoreflect.Name(name))
		}
		read = append(read, names)
	}
	return read, nil
}

// drop clears the field at a path, if the message has the field.
func drop(m protoreflect.Message, path []protoreflect.Name) {
	field := m.Descriptor().Fields().ByName(path[0])
	switch {
	case field == nil || !m.Has(field):
	case len(path) == 1:
		m.Clear(field)
	case field.Message() != nil && !field.IsList() && !field.IsMap():
		drop(m.Mutable(field).Message(), path[1:])
	}
}

// canonical appends an encoded message to the slice out, with the fields of the message sorted by
// number. The fields of nested messages are sorted too. The values of a repeated field keep their
// order.
//
// Requests come from untrusted clients, so the cost must not grow with the nesting: each byte is
// copied once. Sorting does not change the length of a nested message, so its tag and length can be
// copied before its contents are sorted. If the descriptor is nil, the message type is unknown. Its
// fields of wire type bytes are then copied as they are, even if they contain messages.
func canonical(out, encoded []byte, described protoreflect.MessageDescriptor) ([]byte, error) {
	type field struct {
		number protowire.Number
		bytes  []byte
		head   int                            // the length of tag and length prefix
		inner  protoreflect.MessageDescriptor // the type of a nested message; nil for any other field
	}
	var fields []field
	for len(encoded) > 0 {
		number, kind, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return nil, fmt.Errorf("a field of the request cannot be read: %w", protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(number, kind, encoded[n:])
		if size < 0 {
			return nil, fmt.Errorf("field %d of the request cannot be read: %w", number, protowire.ParseError(size))
		}
		f := field{number: number, bytes: encoded[:n+size]}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(encoded[n:])
			f.head, f.inner = len(f.bytes)-len(value), messageIn(described, number)
		}
		fields, encoded = append(fields, f), encoded[n+size:]
	}
	slices.SortStableFunc(fields, func(a, b field) int { return cmp.Compare(a.number, b.number) })
	for _, f := range fields {
		if f.inner == nil {
			out = append(out, f.bytes...)
			continue
		}
		var err error
		if out, err = canonical(append(out, f.bytes[:f.head]...), f.bytes[f.head:], f.inner); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// messageIn returns the type of the nested message in a field. It returns nil if the field is
// unknown or is not a message.
func messageIn(described protoreflect.MessageDescriptor, number protowire.Number) protoreflect.MessageDescriptor {
	if described == nil {
		return nil
	}
	if field := described.Fields().ByNumber(number); field != nil && field.Kind() == protoreflect.MessageKind {
		return field.Message()
	}
	return nil
}
