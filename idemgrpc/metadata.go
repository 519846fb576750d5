package idemgrpc

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// Names of metadata.
const (
	KeyMetadata      = unary.KeyMetadata      // the key, in the metadata of a call
	ReplayedMetadata = unary.ReplayedMetadata // "true" in the header of a reply that an earlier call recorded
)

// keyOf returns the key in the metadata of a call. If the metadata has several keys, keyOf returns
// "", which is not a valid key.
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
