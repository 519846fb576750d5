package main

// Request is sqlc's GenerateRequest, as far as it is needed here.
type Request struct {
	Queries []Query `json:"queries"`
	Options []byte  `json:"plugin_options"`
}

// Options are the options of a package in sqlc.yaml.
type Options struct {
	Package string `json:"package"`
	Style   string `json:"style"` // "trip", or "pgx"

	// Types are the Go types of parameters and columns that have another one than their type in SQL says: of a name, of
	// <file>.<name> or of <query>.<name>. Each is a kind of string, or the name of one of the Conversions.
	Types       map[string]string     `json:"types"`
	Conversions map[string]Conversion `json:"conversions"`

	// Parts are fields that hold several parameters or columns: how Go declares the field, and for each name in SQL where its
	// value is found.
	Parts map[string]string `json:"parts"`
}

// Conversion says how a Go type travels. In each expression %s is the value.
type Conversion struct {
	Go    string `json:"go"`
	Write string `json:"write"` // a parameter; empty: as it is
	Null  string `json:"null"`  // a parameter that may be NULL
	Read  string `json:"read"`  // a column; it may use row instead of %s, and report an error there
	named bool
}

// Query is one query.
type Query struct {
	Text     string      `json:"text"`
	Name     string      `json:"name"`
	Cmd      string      `json:"cmd"`
	Comments []string    `json:"comments"`
	Filename string      `json:"filename"`
	Columns  []Column    `json:"columns"`
	Params   []Parameter `json:"params"`
}

// Parameter is a parameter of a query.
type Parameter struct {
	Number int    `json:"number"`
	Column Column `json:"column"`
}

// Column is a parameter, or a column of a result.
type Column struct {
	Name    string `json:"name"`
	NotNull bool   `json:"not_null"`
	IsArray bool   `json:"is_array"`
	Type    Type   `json:"type"`
}

// Type is the name of a type.
type Type struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
}

// Response is sqlc's GenerateResponse.
type Response struct {
	Files []File `json:"files"`
}

// File is a file to write.
type File struct {
	Name     string `json:"name"`
	Contents []byte `json:"contents"`
}
