package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// Lines calls each for every line of a file. It skips an incomplete last line, which a killed
// process leaves behind.
func Lines(path string, each func(line []byte) error) error {
	return eachLine(path, func(_ uint8, line []byte) error { return each(line) })
}

func eachLine(path string, each func(shard uint8, line []byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	reader := bufio.NewReaderSize(file, 1<<20)
	for n := 1; ; n++ {
		line, err := whole(reader)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", path, n, err)
		}
		shard, err := shardOfLine(line)
		if err == nil {
			err = each(shard, line)
		}
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", path, n, err)
		}
	}
}

// whole returns the next complete line. The line is valid until the next call.
func whole(reader *bufio.Reader) ([]byte, error) {
	line, err := reader.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	rest, err := reader.ReadBytes('\n')
	return append(long, rest...), err
}

var errNoShard = errors.New("the line does not begin with its shard")

func shardOfLine(line []byte) (uint8, error) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"p":`))
	end := bytes.IndexAny(rest, ",}")
	if !ok || end < 0 {
		return 0, errNoShard
	}
	shard, err := strconv.ParseUint(string(rest[:end]), 10, 8)
	return uint8(shard), err
}

// Decode decodes one line.
func Decode[T any](line []byte) (T, error) {
	var decoded T
	err := json.Unmarshal(line, &decoded)
	return decoded, err
}

// Last returns the last event of a file, or nil if the file has none.
func Last(path string) (*Event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	const tail = 256 << 10
	if size, err := file.Seek(0, io.SeekEnd); err != nil {
		return nil, err
	} else if _, err := file.Seek(max(0, size-tail), io.SeekStart); err != nil {
		return nil, err
	}
	rest, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	// The part after the last newline is empty or an incomplete line.
	lines := bytes.Split(rest, []byte("\n"))
	if len(lines) < 2 {
		return nil, nil
	}
	event, err := Decode[Event](lines[len(lines)-2])
	return &event, err
}
