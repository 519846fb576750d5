// Package unary executes unary calls with a key, independent of the RPC framework. The modules
// idemgrpc and idemconnect use it, and most programs should use one of these modules. Use package
// unary directly to write an interceptor for another framework. The package needs protobuf
// messages, but neither grpc-go nor connect-go.
//
// A [Server] runs the handler of a [Call] with [idem.Do]. A [Client] retries calls. The modules
// idemgrpc and idemconnect write the same records. A service can therefore move from one module to
// the other, or use both at once. A retry through one module gets the reply that the other module
// has recorded.
package unary
