package check

import (
	"os"
	"path/filepath"

	"github.com/idem-go/idem/lab/torture/history"
)

// portion is the part of a run that is in memory at one time: the history and the state of some
// keys.
type portion struct{ histories, state []string }

// portionSize is the approximate size of the history of a portion. 64 MiB hold about 140,000 calls.
const portionSize = 64 << 20

// divide divides a run into portions, in files in a new directory beside the state file. It returns
// a function that removes the directory. A run that fits into one portion is not copied.
func divide(histories []string, state string, size int64) ([]portion, func() error, error) {
	total := int64(0)
	for _, path := range histories {
		info, err := os.Stat(path)
		if err != nil {
			return nil, nil, err
		}
		total += info.Size()
	}
	n := min(int(total/size)+1, history.Shards)
	if n == 1 {
		return []portion{{histories, []string{state}}}, func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(state), "portions-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	calls, err := history.Divide(histories, dir, "history", n)
	if err != nil {
		return nil, remove, err
	}
	states, err := history.Divide([]string{state}, dir, "state", n)
	if err != nil {
		return nil, remove, err
	}
	portions := make([]portion, n)
	for i := range portions {
		portions[i] = portion{calls[i : i+1], states[i : i+1]}
	}
	return portions, remove, nil
}
