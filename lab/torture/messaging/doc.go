// Package messaging is what a worker process does in a run of messages: it puts letters into the outbox together with what they tell of,
// relays them to the broker, and handles what the broker delivers. It knows nothing of faults and does not judge; it writes
// down what it did and what it was told.
//
//	worker.go    the process
//	writer.go    who puts letters into the outbox
//	day.go       those of an ordinary day
//	sender.go    what the relay publishes by
//	reader.go    who fetches letters, handles them, and acknowledges them
//	handler.go   what handling a letter is
//	finish.go    the end of a run, when nothing goes wrong any more
package messaging
