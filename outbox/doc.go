// Package outbox tells others what has happened, after the transaction in which it happened has committed, and never without it.
package outbox
