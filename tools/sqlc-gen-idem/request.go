package main

import (
	"fmt"
	"slices"
)

// Request is the part of sqlc's GenerateRequest that the plugin uses.
type Request struct {
	Queries []Query `json:"queries"`
	Options []byte  `json:"plugin_options"`
}

// Options are the options of one package in sqlc.yaml.
type Options struct {
	Package string `json:"package"`
	Style   string `json:"style"` // "trip" or "pgx"

	// Types maps a parameter or column to its Go type. The key is <name>, <file>.<name> or
	// <query>.<name>. The value is a string type of Go, or a key of Conversions.
	Types       map[string]string     `json:"types"`
	Conversions map[string]Conversion `json:"conversions"`

	// Parts maps the declaration of a field to the SQL names that the field holds, with their
	// selectors.
	Parts map[string]string `json:"parts"`

	used map[string]bool // the entries of the three maps that a query uses
}

func (o *Options) use(kind, name string) { o.used[kind+" "+name] = true }

// unused returns an error for an entry that no query uses. Its name is probably misspelled.
func (o *Options) unused() error {
	var names []string
	for name := range o.Types {
		names = append(names, "type "+name)
	}
	for name := range o.Conversions {
		names = append(names, "conversion "+name)
	}
	for name := range o.Parts {
		names = append(names, "part "+name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !o.used[name] {
			return fmt.Errorf("sqlc.yaml: no query uses the %s", name)
		}
	}
	return nil
}

// Conversion says how to encode and decode a Go type. In each expression %s stands for the value.
type Conversion struct {
	Go    string `json:"go"`
	Write string `json:"write"` // encodes a parameter; "": the value is sent as it is
	Null  string `json:"null"`  // encodes a parameter that may be NULL
	Read  string `json:"read"`  // decodes a column; may use row in place of %s
	named bool
}

type Query struct {
	Text     string      `json:"text"`
	Name     string      `json:"name"`
	Cmd      string      `json:"cmd"`
	Comments []string    `json:"comments"`
	Filename string      `json:"filename"`
	Columns  []Column    `json:"columns"`
	Params   []Parameter `json:"params"`
}

type Parameter struct {
	Number int    `json:"number"`
	Column Column `json:"column"`
}

// Column is a column of a result, or the type of a parameter.
type Column struct {
	Name    string `json:"name"`
	NotNull bool   `json:"not_null"`
	IsArray bool   `json:"is_array"`
	Type    Type   `json:"type"`
}

// Type is the name of a SQL type.
type Type struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
}

// Response is sqlc's GenerateResponse.
type Response struct {
	Files []File `json:"files"`
}

// File is a file for sqlc to write.
type File struct {
	Name     string `json:"name"`
	Contents []byte `json:"contents"`
}
