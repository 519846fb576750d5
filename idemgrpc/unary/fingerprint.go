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

// fingerprint tells whether two calls ask for the same. Releases of a server that know different fields of a request agree: what one takes
// for unknown counts as well, and in the place in which the other has it.
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

// paths reads Config.Without.
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

// drop removes a field, if there is one of that path.
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

// canonical appends an encoded message to out, its fields sorted by their numbers, also in the messages that it has. What is repeated keeps its
// order. Each byte is copied once, however deep the message is: a stranger sends it. A nil descriptor is one of a message that is not known.
func canonical(out, encoded []byte, described protoreflect.MessageDescriptor) ([]byte, error) {
	type field struct {
		number protowire.Number
		bytes  []byte
		head   int                            // how many of the bytes are in front of a message, which is as long when it is sorted
		inner  protoreflect.MessageDescriptor // nil if it has none
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

func messageIn(described protoreflect.MessageDescriptor, number protowire.Number) protoreflect.MessageDescriptor {
	if described == nil {
		return nil
	}
	if field := described.Fields().ByNumber(number); field != nil && field.Kind() == protoreflect.MessageKind {
		return field.Message()
	}
	return nil
}
