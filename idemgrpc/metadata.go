package idemgrpc

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// What is said in metadata.
const (
	KeyMetadata      = unary.KeyMetadata      // of a call: its key
	ReplayedMetadata = unary.ReplayedMetadata // in the header of a reply: "true" if it was recorded by an earlier call
)

// keyOf returns the key in the metadata of a call. More than one are no key that the caller can have meant: they are an invalid one.
func keyOf(ctx context.Context, _ any) (string, bool) {
	keys := metadata.ValueFromIncomingContext(ctx, KeyMetadata)
	switch len(keys) {
	case 0:
		return "", false
	case 1:
		return keys[0], true
	}
	return "", true
}
