package idemgrpc

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// Names of metadata.
const (
	KeyMetadata      = unary.KeyMetadata      // in a call: its key
	ReplayedMetadata = unary.ReplayedMetadata // in the header of a reply: "true" if an earlier call recorded it
)

// keyOf returns the key in the metadata of a call. Several keys are ambiguous: keyOf then returns
// "", which is invalid.
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
