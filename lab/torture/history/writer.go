package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Writer appends lines to a file. It is safe for concurrent use.
type Writer struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

// Create creates a new file. It fails if the file exists.
func Create(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &Writer{file: file}, nil
}

// Append adds one line, usually an Event. When Append returns, the line survives the death of the
// process. Close returns the first error of Append, because a history with a gap must not be
// judged.
func (w *Writer) Append(line any) {
	encoded, err := json.Marshal(line)
	encoded = append(encoded, '\n')
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		_, err = w.file.Write(encoded)
	}
	if w.err == nil {
		w.err = err
	}
}

// Close closes the file and returns the first error of Append or of closing.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.file.Close(); w.err == nil {
		w.err = err
	}
	return w.err
}

// Read returns the lines of all workers of a run, from their files in dir. It skips an incomplete
// last line, which a killed process leaves behind.
func Read[T any](dir string) (lines []T, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "worker-*.jsonl"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		n := 0
		for line := range bytes.Lines(content) {
			n++
			if line[len(line)-1] != '\n' {
				break
			}
			var decoded T
			if err := json.Unmarshal(line, &decoded); err != nil {
				return nil, fmt.Errorf("%s: line %d: %w", path, n, err)
			}
			lines = append(lines, decoded)
		}
	}
	return lines, nil
}
