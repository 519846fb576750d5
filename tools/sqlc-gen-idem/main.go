package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var request Request
	if err := json.NewDecoder(in).Decode(&request); err != nil {
		return fmt.Errorf("sqlc's request is not understood: %w", err)
	}
	files, err := generate(&request)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(Response{Files: files})
}
