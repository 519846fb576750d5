// Package unary is the part that modules idemgrpc and idemconnect share: it executes one unary call
// with a key, independent of the framework. It needs protobuf messages, but neither grpc-go nor
// connect-go. Use those modules. This package is for authors of interceptors for other frameworks.
//
// A [Server] runs the handler of a [Call] with [idem.Do]. A [Client] retries calls. Both modules
// write the same records. A service can therefore move from one to the other, or be served by both,
// and retries get the replies that the other has recorded.
package unary
