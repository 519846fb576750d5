// Package ent is written by ent, from ent/schema.
package ent

//go:generate go run -mod=mod entgo.io/ent/cmd/ent@v0.14.5 generate ./schema
