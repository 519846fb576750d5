// Package broker is a message broker that runs in another process than the workers. It is an HTTP
// server with topics, and it records in its books what it has taken.
//
// It delivers each letter at least once to each consumer of its topic, and the letters of a key in
// order and to one process at a time. It fails in many ways: it is slow, refuses letters, takes
// some letters of a request but not all, loses its answer, forgets acknowledgements, redelivers
// letters that were acknowledged long ago, delivers another payload under a known id, and has the
// calling process killed before and after it takes something.
//
//	broker.go    the server
//	topic.go     the letters of a topic, and the state of a consumer
//	client.go    the client
package broker
