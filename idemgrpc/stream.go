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

// Stream returns an interceptor that refuses streams with UNIMPLEMENTED. The replies of a stream
// cannot be recorded, so a retry would repeat its effects. Streams of methods that Config.Methods
// excludes pass through. With Config.Optional, streams without a key pass through too.
func (i *Interceptor) Stream() grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		_, hasKey := keyOf(stream.Context(), nil)
		if !i.config.Methods(info.FullMethod) || i.config.Optional && !hasKey {
			return handler(server, stream)
		}
		return status.ErrorProto(unary.Say(code.Code_UNIMPLEMENTED, Streaming, info.FullMethod+" is a stream, whose replies cannot be recorded: Config.Methods of idemgrpc lets it pass without a key"))
	}
}

// held collects the metadata that one run of the handler sets. The metadata is sent only if the
// result of this run is the answer to the call. The metadata of earlier runs is discarded.
type held struct {
	grpc.ServerTransportStream
	mu              sync.Mutex
	header, trailer metadata.MD
}

// hold returns a context for a run of the handler, and a held that collects the metadata of this
// run. Outside of a gRPC server, hold returns ctx and nil.
func hold(ctx context.Context) (context.Context, *held) {
	stream := grpc.ServerTransportStreamFromContext(ctx)
	if stream == nil {
		return ctx, nil
	}
	h := &held{ServerTransportStream: stream}
	return grpc.NewContextWithServerTransportStream(ctx, h), h
}

// SetHeader collects header metadata.
func (h *held) SetHeader(md metadata.MD) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.header = metadata.Join(h.header, md)
	return nil
}

// SendHeader collects header metadata like SetHeader. The header is sent later, with the reply.
func (h *held) SendHeader(md metadata.MD) error { return h.SetHeader(md) }

// SetTrailer collects trailer metadata.
func (h *held) SetTrailer(md metadata.MD) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trailer = metadata.Join(h.trailer, md)
	return nil
}

// release passes the collected metadata on to the stream.
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
