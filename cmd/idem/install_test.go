package main_test

import (
	"archive/zip"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	library = "github.com/idem-go/idem"
	tool    = "github.com/idem-go/idem/cmd/idem"
	release = "v0.1.0" // what go.mod asks for
)

// TestGoInstallFindsAllItNeedsOnceReleased: both modules are served as a proxy would serve their tags, and go install plans from
// there, in a directory that knows nothing of this repository. It does not compile, for which half a minute would go: these are
// the sources that were compiled for the other tests.
func TestGoInstallFindsAllItNeedsOnceReleased(t *testing.T) {
	t.Parallel()
	proxy := t.TempDir()
	publish(t, proxy, library, filepath.Join("..", ".."))
	publish(t, proxy, tool, ".")

	cache := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
	cmd := exec.Command("go", "install", "-n", tool+"@"+release)
	cmd.Dir = t.TempDir()
	own := t.TempDir() // a cache of modules, so that this one never sees a release that is none
	cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=-modcacherw", "GOMODCACHE="+own, "GOSUMDB=off", "GONOPROXY=none", "GOPRIVATE=",
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download")+","+strings.TrimSpace(output(t, "go", "env", "GOPROXY")))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, part := range []string{library + "@" + release, tool + "@" + release} {
		if !strings.Contains(string(out), filepath.Join(own, filepath.FromSlash(part))) {
			t.Errorf("it does not compile %s", part)
		}
	}
}

// publish writes what a proxy has of a version: its go.mod, and its files without the modules below it.
func publish(t *testing.T, proxy, module, dir string) {
	t.Helper()
	to := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list": release + "\n", release + ".info": `{"Version":"` + release + `"}`, release + ".mod": string(mod),
	} {
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Create(filepath.Join(to, release+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	archive := zip.NewWriter(file)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != dir && isElsewhere(path, entry.Name()):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return pack(archive, module+"@"+release+"/"+filepath.ToSlash(name), path)
	})
	if err == nil {
		err = archive.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// isElsewhere tells whether a directory is no part of the module around it.
func isElsewhere(path, name string) bool {
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil || name == "bin" || strings.HasPrefix(name, ".") || name == "docs"
}

func pack(archive *zip.Writer, name, path string) error {
	to, err := archive.Create(name)
	if err != nil {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.Copy(to, from)
	return err
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return string(out)
}
