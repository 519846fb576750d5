package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"go/format"
	"slices"
	"sort"
	"strings"
	"text/template"
)

//go:embed trip.go.tmpl
var tripTemplate string

//go:embed pgx.go.tmpl
var pgxTemplate string

// generate returns one Go file for each SQL file of the request.
func generate(request *Request) ([]File, error) {
	options := Options{used: map[string]bool{}}
	decoder := json.NewDecoder(bytes.NewReader(request.Options))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&options); err != nil {
		return nil, fmt.Errorf("parse the options of sqlc.yaml: %w", err)
	}
	text, ok := map[string]string{"trip": tripTemplate, "pgx": pgxTemplate}[options.Style]
	if !ok {
		return nil, fmt.Errorf("sqlc.yaml: unknown style %q; use trip or pgx", options.Style)
	}
	files := map[string][]*Statement{}
	for i := range request.Queries {
		s, err := newStatement(&request.Queries[i], &options)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", request.Queries[i].Filename, request.Queries[i].Name, err)
		}
		files[s.file] = append(files[s.file], s)
	}
	if err := options.unused(); err != nil {
		return nil, err
	}
	if err := shareRows(files); err != nil {
		return nil, err
	}
	written, err := write(text, options.Package, files)
	sort.Slice(written, func(i, j int) bool { return written[i].Name < written[j].Name })
	return written, err
}

func write(text, name string, files map[string][]*Statement) ([]File, error) {
	t, err := template.New(name).Funcs(template.FuncMap{"lower": unexported}).Parse(text)
	if err != nil {
		return nil, err
	}
	var written []File
	for file, statements := range files {
		var source bytes.Buffer
		err := t.Execute(&source, map[string]any{"Package": name, "File": file, "Statements": statements, "Time": needsTime(statements)})
		if err != nil {
			return nil, err
		}
		formatted, err := format.Source(source.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", file, err, source.Bytes())
		}
		written = append(written, File{Name: file + ".go", Contents: formatted})
	}
	return written, nil
}

func needsTime(statements []*Statement) bool {
	for _, s := range statements {
		for _, f := range append(s.OwnRead(), s.OwnParams()...) {
			if strings.Contains(f.Type, "time.") {
				return true
			}
		}
	}
	return false
}

// shareRows finds statements that have the same row type, and marks all except one of them, so that
// the type is declared only once. It fails if the rows of these statements differ.
func shareRows(files map[string][]*Statement) error {
	first := map[string]*Statement{}
	for _, statements := range files {
		for _, s := range statements {
			if !s.DeclaresRow() {
				continue
			}
			other, ok := first[s.RowType]
			if !ok {
				first[s.RowType] = s
				continue
			}
			if s.file != other.file || !slices.Equal(s.OwnRead(), other.OwnRead()) || !slices.Equal(s.RowParts, other.RowParts) {
				return fmt.Errorf("the rows of %s and %s differ: both cannot be %s", s.Name, other.Name, s.RowType)
			}
			s.SharesRow = true
		}
	}
	return nil
}
