package main

import (
	"fmt"
	"strings"
)

// goType describes the Go type and the wire format of a Postgres type.
type goType struct {
	name   string // the name of the Go type
	param  string // the kind of parameter that package roundtrip declares for the type
	values string // the method of roundtrip.Values that adds a value; "" if a round trip cannot send the type
	row    string // the method of roundtrip.Row that reads a value; "" if a round trip cannot read the type
	format string // the wire format of a result column
	nulls  bool   // a NULL in a result is read as the zero value
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

// aliases maps other names of types, from the SQL grammar and from sqlc, to the names in
// pg_catalog.
var aliases = map[string]string{"integer": "int4", "int": "int4", "bigint": "int8", "boolean": "bool", "serial": "int4", "bigserial": "int8",
	"timestamp with time zone": "timestamptz", "double precision": "float8"}

// typeName returns the name of a column's type in pg_catalog. It fails if sqlc has not inferred the
// type.
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

// goTypeOf returns the goType of a parameter or column. It fails for a type that is not in goTypes.
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

// initials maps words in SQL names to their spelling in Go names, for initialisms such as ID.
var initials = map[string]string{"id": "ID", "ids": "IDs", "ttl": "TTL", "oid": "OID"}

// exported converts a SQL name to an exported Go name.
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

// snake converts a Go name to a SQL name.
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
