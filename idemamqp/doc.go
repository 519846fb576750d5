// Package idemamqp is RabbitMQ for outbox and inbox.
package idemamqp
