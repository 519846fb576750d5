// Package idemwatermill is Watermill for outbox and inbox.
package idemwatermill
