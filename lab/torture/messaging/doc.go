// Package messaging is the program of a worker process in a run of messages. It adds letters to the
// outbox together with other rows, relays them to the broker, and handles what the broker delivers.
// It knows nothing of the faults and does not judge. It logs what it did and which answers it got.
//
//	worker.go    the process
//	writer.go    adds letters to the outbox
//	day.go       the same in a run without faults
//	sender.go    the Publisher of the relay
//	reader.go    fetches, handles and acknowledges deliveries
//	handler.go   the handler of a letter
//	direct.go    consumers without a broker
//	finish.go    the end of a run, without faults
package messaging
