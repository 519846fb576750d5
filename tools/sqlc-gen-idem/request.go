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
	// <query>.<name>. The value is a Go type whose underlying type is string, or a key of
	// Conversions.
	Types       map[string]string     `json:"types"`
	Conversions map[string]Conversion `json:"conversions"`

	// Parts maps the declaration of a Go field to the SQL names of the parameters or columns in
	// that field. A name can have the form name=selector, if its selector inside the field does not
	// follow from the name.
	Parts map[string]string `json:"parts"`

	used map[string]bool // the entries of Types, Conversions and Parts that a query uses
}

func (o *Options) use(kind, name string) { o.used[kind+" "+name] = true }

// unused returns an error if no query uses an entry of Types, Conversions or Parts. The name of
// such an entry is probably misspelled.
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

// Conversion says how the generated code encodes and decodes a Go type. Write, Null and Read are Go
// expressions, in which %s stands for the value.
type Conversion struct {
	Go    string `json:"go"`
	Write string `json:"write"` // encodes a parameter; "" if the value is sent unchanged
	Null  string `json:"null"`  // encodes a parameter that may be NULL
	Read  string `json:"read"`  // decodes a column; may also use the variable row to read the value
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

// Column describes a column of a result, or the name and type of a parameter.
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

// Response is the GenerateResponse that sqlc expects from a plugin.
type Response struct {
	Files []File `json:"files"`
}

// File is a generated file, which sqlc writes.
type File struct {
	Name     string `json:"name"`
	Contents []byte `json:"contents"`
}
