// Package faultproxy stands between a pool and its server and breaks one statement at a time: it cuts the connection before the
// statement or behind it, answers it with a serialization failure, or tells the test that it has come.
//
// What it counts are flights: all that a client sends before it waits for an answer, be it one statement or several. The server
// may want TLS; what connects to the proxy talks in the clear, over the loopback.
package faultproxy
