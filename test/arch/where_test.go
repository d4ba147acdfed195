// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"os"
	"os/exec"
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
	out, err := where(t, makefile, 65534)
	if err == nil {
		t.Errorf("it may run without root: %s", out)
	}
	for lane := range strings.SplitSeq(string(m[1]), ", ") {
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
	if os.Geteuid() != 0 {
		return
	}
	if out, err := where(t, makefile, 0); err != nil || out != "" {
		t.Errorf("as root: %v, %s", err, out)
	}
}

// where is make's answer to a user. The Makefile comes over standard input: the user need not be able to read this folder.
func where(t *testing.T, makefile []byte, uid uint32) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "-s", "-f", "-", "test-where")
	cmd.Dir, cmd.Stdin = "/", strings.NewReader(string(makefile))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=/tmp"}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
