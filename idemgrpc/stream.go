package idemgrpc

import (
	"context"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// Stream returns the interceptor that refuses streams: they have no reply that could be recorded, and would have their effects again. Methods
// that Config.Methods leaves out pass through, and where Config.Optional is set streams without a key.
func (i *Interceptor) Stream() grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		_, hasKey := keyOf(stream.Context(), nil)
		if !i.config.Methods(info.FullMethod) || i.config.Optional && !hasKey {
			return handler(server, stream)
		}
		return status.ErrorProto(unary.Say(code.Code_UNIMPLEMENTED, Streaming, info.FullMethod+" is a stream, whose replies cannot be recorded: Config.Methods of idemgrpc lets it pass without a key"))
	}
}

// held keeps the metadata that a handler sets until it is known that its run counts: of those that were rolled back nothing is sent.
type held struct {
	grpc.ServerTransportStream
	mu              sync.Mutex
	header, trailer metadata.MD
}

// hold returns a context in which metadata is kept, if ctx is that of a call.
func hold(ctx context.Context) (context.Context, *held) {
	stream := grpc.ServerTransportStreamFromContext(ctx)
	if stream == nil {
		return ctx, nil
	}
	h := &held{ServerTransportStream: stream}
	return grpc.NewContextWithServerTransportStream(ctx, h), h
}

// SetHeader keeps a part of the header.
func (h *held) SetHeader(md metadata.MD) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.header = metadata.Join(h.header, md)
	return nil
}

// SendHeader keeps the header as well: it goes out with the reply.
func (h *held) SendHeader(md metadata.MD) error { return h.SetHeader(md) }

// SetTrailer keeps a part of the trailer.
func (h *held) SetTrailer(md metadata.MD) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trailer = metadata.Join(h.trailer, md)
	return nil
}

// release sends what was kept.
func (h *held) release() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.header) > 0 {
		_ = h.ServerTransportStream.SetHeader(h.header)
	}
	if len(h.trailer) > 0 {
		_ = h.ServerTransportStream.SetTrailer(h.trailer)
	}
}
