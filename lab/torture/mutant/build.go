package mutant

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds the torture with the mutant in place of the library, as a program in dir. module is
// the source directory of the torture. If m is nil, Build uses the library as it is.
func Build(ctx context.Context, module, dir string, m *Mutant) (program string, err error) {
	program = filepath.Join(dir, "torture-"+m.name())
	args := []string{"build", "-o", program}
	if m != nil {
		overlay, err := m.overlay(module, dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	build := exec.CommandContext(ctx, "go", append(args, ".")...)
	build.Dir = module
	var out bytes.Buffer
	build.Stdout, build.Stderr = &out, &out
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", m.name(), err, out.Bytes())
	}
	return program, nil
}

func (m *Mutant) name() string {
	if m == nil {
		return "unmutated"
	}
	return m.Name
}

// overlay writes the edited files and the overlay file for go build, and returns its path.
func (m *Mutant) overlay(module, dir string) (string, error) {
	root, err := filepath.Abs(filepath.Join(module, "..", ".."))
	if err != nil {
		return "", err
	}
	edited, err := m.Apply(root)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for path, source := range edited {
		file := filepath.Join(dir, fmt.Sprintf("%s-%d-%s", m.Name, len(replace), filepath.Base(path)))
		if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, path)] = file
	}
	encoded, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, m.Name+".json")
	return overlay, os.WriteFile(overlay, encoded, 0o644)
}
