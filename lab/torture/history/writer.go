package history

import (
	"encoding/json"
	"os"
	"sync"
)

// Writer appends to one file. It may be used by many goroutines.
type Writer struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

// Create makes a new file.
func Create(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &Writer{file: file}, nil
}

// Append adds one line, an Event as a rule. When it returns, the line outlives the process. An error is kept for Close:
// a history with a gap is no evidence.
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

// Close returns the first error there was.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.file.Close(); w.err == nil {
		w.err = err
	}
	return w.err
}
