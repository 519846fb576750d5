// Package unary is what the interceptors of modules idemgrpc and idemconnect share: one unary call with a key, whatever brings it to the server. It
// needs messages of protobuf, and neither grpc-go nor connect-go. Use those modules; this package is for who writes an interceptor for another
// framework.
//
// A [Server] runs the handler of a [Call] by [idem.Do]. A [Client] sends a call again. What is recorded is the same for both modules: a service that
// moves from one to the other, or that is served by both, gives retries the replies that the other has recorded.
package unary
