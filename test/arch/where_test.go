// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var allLanes = regexp.MustCompile(`all lanes passed: ([a-z, ]+)"`)

// TestMakeTestSaysWhere: without root make test names every lane, says which cannot run and why, and fails before any work.
func TestMakeTestSaysWhere(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m := allLanes.FindSubmatch(makefile)
	if m == nil {
		t.Fatal("the Makefile does not list the lanes: this test is out of date")
	}
	lanes := strings.Split(string(m[1]), ", ")
	out, err := where(t, makefile, 65534, os.Getenv("PATH"))
	if err == nil {
		t.Errorf("it may run without root: %s", out)
	}
	for _, lane := range lanes {
		says := " cannot[^.]*:"
		if slices.Contains([]string{"lint", "fuzz"}, lane) {
			says = " can:"
		}
		if !regexp.MustCompile(`\b` + lane + `\b[^.]*` + says).MatchString(out) {
			t.Errorf("lane %s: it does not say%s %s", lane, says, out)
		}
	}
	if !strings.Contains(out, "not root") {
		t.Errorf("the reason is not told: %s", out)
	}
	notLinux(t, makefile, lanes)
	if os.Geteuid() != 0 {
		return
	}
	if out, err := where(t, makefile, 0, os.Getenv("PATH")); err != nil || out != "" {
		t.Errorf("as root: %v, %s", err, out)
	}
}

// notLinux is the same on a system that is not Linux: by its uname.
func notLinux(t *testing.T, makefile []byte, lanes []string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "uname"), []byte("#!/bin/sh\necho Plan9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := where(t, makefile, uint32(os.Geteuid()), dir+":"+os.Getenv("PATH"))
	if err == nil || !strings.Contains(out, "no lane can run on Plan9") {
		t.Errorf("not on Linux: %v, %s", err, out)
	}
	_, reasons, _ := strings.Cut(out, "no lane can run on Plan9")
	for _, lane := range lanes {
		if !regexp.MustCompile(`\b` + lane + `\b[^.]* Linux\b`).MatchString(reasons) {
			t.Errorf("lane %s: why it cannot run elsewhere is not told: %s", lane, out)
		}
	}
}

// where is make's answer to a user who finds programs by path. The Makefile comes over standard input: the user need not be able to read this folder.
func where(t *testing.T, makefile []byte, uid uint32, path string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "-s", "-f", "-", "test-where")
	cmd.Dir, cmd.Stdin = "/", strings.NewReader(string(makefile))
	cmd.Env = []string{"PATH=" + path, "TMPDIR=/tmp"}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
