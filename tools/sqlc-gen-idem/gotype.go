package main

import (
	"fmt"
	"strings"
)

// goType says how a type of Postgres travels, and what it is in Go.
type goType struct {
	name   string // of the Go type
	param  string // the form of a parameter, in package roundtrip
	values string // the method of roundtrip.Values that adds one
	row    string // the method of roundtrip.Row that reads one; none: the query has to make something else of it
	format string // of a result
	nulls  bool   // the zero value stands for NULL
}

var goTypes = map[string]goType{
	"text":        {name: "string", param: "TextParam", values: "Text", row: "Text", format: "Text", nulls: true},
	"uuid":        {name: "string", param: "TextParam", values: "Text", row: "Text", format: "Text", nulls: true},
	"bool":        {name: "bool", param: "PlainParam", values: "Bool", row: "Bool", format: "Text"},
	"int4":        {name: "int", param: "PlainParam", values: "Int", row: "Int", format: "Text"},
	"int8":        {name: "int64", param: "PlainParam", values: "Int64", row: "Int64", format: "Text"},
	"float8":      {name: "float64"},
	"interval":    {name: "time.Duration", param: "PlainParam", values: "Interval"},
	"bytea":       {name: "[]byte", param: "BytesParam", values: "Bytes", row: "Bytes", format: "Binary", nulls: true},
	"timestamptz": {name: "time.Time", row: "Time", format: "Binary", nulls: true},
}

// aliases are the names that the grammar, or sqlc, has for some.
var aliases = map[string]string{"integer": "int4", "int": "int4", "bigint": "int8", "boolean": "bool", "serial": "int4", "bigserial": "int8",
	"timestamp with time zone": "timestamptz", "double precision": "float8"}

// typeName returns the name of a type in pg_catalog.
func typeName(c Column) (string, error) {
	name := c.Type.Name
	if c.Type.Schema != "" && c.Type.Schema != "pg_catalog" {
		return "", fmt.Errorf("%s has a type of schema %s", c.Name, c.Type.Schema)
	}
	name = strings.TrimPrefix(name, "pg_catalog.")
	if other, ok := aliases[name]; ok {
		name = other
	}
	if name == "" || name == "any" || name == "anyelement" {
		return "", fmt.Errorf("the type of %s is not known: cast it", c.Name)
	}
	return name, nil
}

// goTypeOf returns how a parameter or a column travels.
func goTypeOf(c Column) (goType, error) {
	name, err := typeName(c)
	if err != nil {
		return goType{}, err
	}
	t, ok := goTypes[name]
	if !ok {
		return t, fmt.Errorf("%s has the type %s, which does not travel: cast it to text", c.Name, name)
	}
	if c.IsArray {
		t = goType{name: "[]" + t.name}
	}
	return t, nil
}

// initials are words of names that Go writes in capitals.
var initials = map[string]string{"id": "ID", "ids": "IDs", "ttl": "TTL", "oid": "OID"}

// exported makes a Go name of one in SQL.
func exported(name string) string {
	var made strings.Builder
	for _, word := range strings.Split(name, "_") {
		if word == "" {
			continue
		}
		if capitals, ok := initials[word]; ok {
			made.WriteString(capitals)
			continue
		}
		made.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return made.String()
}

func unexported(name string) string { return strings.ToLower(name[:1]) + name[1:] }

// snake makes a name of SQL of one in Go.
func snake(name string) string {
	var made strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				made.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		made.WriteRune(r)
	}
	return made.String()
}
