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
