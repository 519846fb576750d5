// Package broker is a message broker, in another process than the workers: an HTTP server with topics, which keeps books of what
// it has taken. It delivers each letter to each consumer of its topic, once at least, the letters of a key in their order and
// to one at a time. It is slow, refuses, takes some letters of a call and not the others, loses its answer and what is
// acknowledged, delivers again what was acknowledged long ago or something else under its id, and has whoever calls killed
// before and after it takes something.
//
//	broker.go    the server
//	topic.go     what was taken, and what a consumer has of it
//
// client.go    who calls it
package broker
