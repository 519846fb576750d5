package idemgrpc

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// What is said in metadata.
const (
	KeyMetadata      = "idempotency-key"      // of a call: its key
	ReplayedMetadata = "idempotency-replayed" // in the header of a reply: "true" if it was recorded by an earlier call
)

// keyOf returns the key in the metadata of a call. Of more than one nobody knows which is meant: they are no key, and an invalid one.
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
