// Package ent is the client that the tool ent generates from the package schema.
package ent

//go:generate go run -mod=mod entgo.io/ent/cmd/ent@v0.14.5 generate ./schema
