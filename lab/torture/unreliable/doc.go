// Package unreliable is an HTTP server with injected failures. It is slow, refuses requests, drops
// requests or answers, and has the calling process killed.
package unreliable
