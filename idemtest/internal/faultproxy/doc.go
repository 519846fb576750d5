// Package faultproxy is a proxy between a pool and a Postgres server. It injects one fault at a
// chosen statement: it cuts the connection before or after the statement, answers with a
// serialization failure, simulates a crash or an outage, or calls a function of the test.
//
// The proxy counts flights. A flight is everything that a client sends before it waits for an
// answer, and contains one statement or several.
//
// The client connects to the loopback address without TLS. The proxy uses TLS to the server if the
// configuration asks for it.
package faultproxy
