package mutant

import (
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Edit replaces a piece of a file, which must be there exactly once. It follows its Go when that is laid out in another way, or is
// commented otherwise, and when it moves to another file of its package.
type Edit struct {
	File     string // from the root of the repository
	Old, New string
}

// apply makes the edit, in the files as earlier edits have left them.
func (e Edit) apply(root string, edited map[string]string) error {
	sources, err := e.sources(root, edited)
	if err != nil {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	if n := strings.Count(sources[e.File], e.Old); n == 1 {
		edited[e.File] = strings.Replace(sources[e.File], e.Old, e.New, 1)
		return nil
	}
	found := 0
	for file, source := range sources {
		for _, at := range occurrences(source, e.Old) {
			found++
			edited[file] = source[:at.begin] + strings.TrimSpace(e.New) + source[at.end:]
		}
	}
	if found != 1 {
		return fmt.Errorf("%w: %s has %d times %q", errStale, filepath.Dir(e.File), found, e.Old)
	}
	return nil
}

// sources are the file of the edit and, if it is Go, the others of its package.
func (e Edit) sources(root string, edited map[string]string) (map[string]string, error) {
	files := []string{e.File}
	if filepath.Ext(e.File) == ".go" {
		all, err := filepath.Glob(filepath.Join(root, filepath.Dir(e.File), "*.go"))
		if err != nil {
			return nil, err
		}
		files = nil
		for _, path := range all {
			if !strings.HasSuffix(path, "_test.go") {
				files = append(files, filepath.ToSlash(filepath.Join(filepath.Dir(e.File), filepath.Base(path))))
			}
		}
	}
	sources := make(map[string]string)
	maps.Copy(sources, edited)
	maps.DeleteFunc(sources, func(file, _ string) bool { return !slices.Contains(files, file) })
	for _, file := range files {
		if _, ok := sources[file]; !ok {
			read, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				return nil, err
			}
			sources[file] = string(read)
		}
	}
	return sources, nil
}

type span struct{ begin, end int }

// occurrences returns where a source has the tokens of a piece, whatever white space and comments are between them.
func occurrences(source, piece string) (found []span) {
	texts, places := tokens(source)
	wanted, _ := tokens(piece)
	for i := 0; len(wanted) > 0 && i+len(wanted) <= len(texts); i++ {
		if slices.Equal(texts[i:i+len(wanted)], wanted) {
			found = append(found, span{places[i].begin, places[i+len(wanted)-1].end})
		}
	}
	return found
}

// tokens returns those of a piece of Go, without the semicolons that are not written.
func tokens(piece string) (texts []string, places []span) {
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(piece))
	s.Init(file, []byte(piece), func(token.Position, string) {}, 0)
	for {
		pos, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return texts, places
		case tok == token.SEMICOLON && text != ";":
			continue
		case text == "":
			text = tok.String()
		}
		begin := file.Offset(pos)
		texts, places = append(texts, text), append(places, span{begin, begin + len(text)})
	}
}
