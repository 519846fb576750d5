package history

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Divide copies the lines of files into n new files in dir, by shard, and returns their paths. The
// lines of a key stay in their order. Each file is read once.
func Divide(paths []string, dir, name string, n int) (_ []string, err error) {
	var parts []string
	var files []*os.File
	var writers []*bufio.Writer
	defer func() {
		for i, file := range files {
			err = errors.Join(err, writers[i].Flush(), file.Close())
		}
	}()
	for i := range n {
		file, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%03d", name, i)))
		if err != nil {
			return nil, err
		}
		parts, files, writers = append(parts, file.Name()), append(files, file), append(writers, bufio.NewWriterSize(file, 64<<10))
	}
	for _, path := range paths {
		err := eachLine(path, func(shard uint8, line []byte) error {
			_, err := writers[int(shard)%n].Write(line)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return parts, nil
}
