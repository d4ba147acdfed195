// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package crds_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGenerated: the definitions and the deep copies are what controller-gen and hack/crdbounds make of the types. It is built from hack/tools, as
// `make generate` does.
func TestGenerated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = "../.."
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
		}
		return out
	}
	copies := run("tool", "-modfile=hack/tools/go.mod", "controller-gen", "crd", "object:headerFile=hack/boilerplate.go.txt", "paths=./api/...", "output:crd:dir="+dir, "output:object:stdout")
	run("run", "./hack/crdbounds", dir)
	made, kept := yamls(t, dir), yamls(t, ".")
	for name, text := range made {
		if kept[name] != text {
			t.Errorf("packaging/crds/%s is not what the types say: make generate", name)
		}
	}
	for name := range kept {
		if _, ok := made[name]; !ok {
			t.Errorf("packaging/crds/%s is made from no type: remove it", name)
		}
	}
	rest := string(copies)
	err := filepath.WalkDir("../../api", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "zz_generated.deepcopy.go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		before := len(rest)
		rest = strings.Replace(rest, string(text), "", 1)
		if len(rest) == before {
			t.Errorf("%s is not what the types say: make generate", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(rest) != "" && !t.Failed() {
		t.Errorf("deep copies that no file holds: make generate\n%.400s", rest)
	}
}

// yamls are the definitions of a folder by file name.
func yamls(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions in %s: %v", dir, err)
	}
	out := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = string(text)
	}
	return out
}
