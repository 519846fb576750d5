package roundtrip

import (
	"encoding/hex"
	"regexp"
	"strconv"
)

// A name in double quotes may have what looks like a placeholder.
var placeholder = regexp.MustCompile(`"[^"]*"|\$\d+`)

// interpolate writes the values into the statement as literals, for the simple protocol and for sessions
// whose encoding is not UTF-8. Every parameter is cast in the SQL,
// so a literal is of the type that a parameter would be of. What is not plain travels in hexadecimal digits, which no
// setting of the session reads in another way.
func interpolate(sql string, params []Param, values [][]byte) string {
	return placeholder.ReplaceAllStringFunc(sql, func(name string) string {
		if name[0] == '"' {
			return name
		}
		n, _ := strconv.Atoi(name[1:])
		value := values[n-1]
		switch {
		case value == nil:
			return "NULL"
		case params[n-1] == BytesParam:
			return "pg_catalog.decode('" + hex.EncodeToString(value) + "', 'hex')"
		case params[n-1] == TextParam:
			return "pg_catalog.convert_from(pg_catalog.decode('" + hex.EncodeToString(value) + "', 'hex'), 'UTF8')"
		}
		return "'" + string(value) + "'"
	})
}
