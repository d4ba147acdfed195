// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package critest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestWriteOOMRunc(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "it's")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	runc := filepath.Join(dir, "runc")
	if err := os.WriteFile(runc, []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	wrapper, err := WriteOOMRunc(dir, runc)
	if err != nil {
		t.Fatal(err)
	}
	config, process := filepath.Join(dir, "config.json"), filepath.Join(dir, "process")
	for file, text := range map[string]string{config: `{"process":{"oomScoreAdj":-998}}`, process: `{"oomScoreAdj":-997}`} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"create", "--bundle", dir, "id"}, {"exec", "--process", process, "id"}} {
		out, err := exec.Command(wrapper, args...).CombinedOutput()
		if want := args[0] + " " + args[1] + " " + args[2] + " id\n"; err != nil || string(out) != want {
			t.Errorf("runc got %q, want %q, %v", out, want, err)
		}
	}
	for file, want := range map[string]string{config: `{"process":{"oomScoreAdj":0}}`, process: `{"oomScoreAdj":0}`} {
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", filepath.Base(file), got, err)
		}
	}
}
