// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/child"
)

// TestHostMemoryOOMScore and TestGuestMemoryOOMScore, on cgroup v2, are what tuning of oom_score_adj is worth (ADR 25): in a cgroup that is out of
// memory the kernel kills the same process first whatever is taken off the scores of all of them, so that at its own limit a container has
// nothing of it. It goes by the score where it differs between them, as it does between containers. Who was first the kernel's log says: a second one may follow before the
// first one's memory is free.
func TestHostMemoryOOMScore(t *testing.T)  { oomScore(t) }
func TestGuestMemoryOOMScore(t *testing.T) { oomScore(t) }

func oomScore(t *testing.T) {
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		name         string
		large, small int // oom_score_adj; above 0, since to go below takes CAP_SYS_RESOURCE
		victim       string
	}{
		{"as it was", 600, 600, "large"},
		{"less for all", 300, 300, "large"},
		{"less for the larger", 300, 700, "small"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := fmt.Sprintf("-%d-%d", os.Getpid()%1_000_000, i) // a process's name has 15 bytes
			dir := memoryGroup(t, tree, "koord-rt-oom"+run, 160*mib)
			for who, k := range map[string]struct{ size, score int }{"large": {80 * mib, c.large}, "small": {40 * mib, c.small}} {
				keeping(t, []string{dir}, who+run, k.size, k.score).begun()
			}
			first := firstKilled(t, run)
			keeping(t, []string{dir}, "third"+run, 50*mib, 0) // too much beside both, and with room to spare beside either
			if got := first(); got != c.victim {
				t.Errorf("the kernel has killed the %s process first, want the %s one", got, c.victim)
			}
		})
	}
}

// memoryGroup is a cgroup of the memory controller with a limit.
func memoryGroup(t *testing.T, tree cgroups.Tree, name string, limit int) string {
	t.Helper()
	mount, file, swap := tree.Controllers["memory"], "memory.limit_in_bytes", "memory.swappiness"
	if tree.V2() {
		mount, file, swap = tree.Unified, "memory.max", "memory.swap.max"
		if err := cgroups.Write(mount, "cgroup.subtree_control", "+memory"); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(mount, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cgroups.Remove(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	for f, value := range map[string]int{file: limit, swap: 0} { // swap would take the place of a kill
		if _, err := os.Lstat(filepath.Join(dir, f)); err != nil && f == swap {
			continue // a kernel without
		}
		if err := cgroups.Write(dir, f, strconv.Itoa(value)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// killed is the line of the kernel's log that names a victim (__oom_kill_process of mm/oom_kill.c); others, with the cgroup, are limited in rate.
var killed = regexp.MustCompile(`Memory cgroup out of memory: Killed process \d+ \((.*)\) total-vm:`)

// firstKilled follows the kernel's log from now on, and then waits for the first process of a run that was killed for a cgroup's limit.
func firstKilled(t *testing.T, run string) (name func() string) {
	t.Helper()
	log, err := os.Open("/dev/kmsg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	if _, err := log.Seek(0, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		if err := log.SetReadDeadline(time.Now().Add(patience(shortest))); err != nil {
			t.Fatal(err)
		}
		record := make([]byte, 8<<10) // each read is one (Documentation/ABI/testing/dev-kmsg)
		for {
			n, err := log.Read(record)
			switch {
			case errors.Is(err, unix.EPIPE): // others have written more than there is room for; the next is the oldest that is left
				continue
			case err != nil:
				t.Fatalf("nobody is killed: %v", err)
			}
			if m := killed.FindSubmatch(record[:n]); m != nil {
				if name, ours := strings.CutSuffix(string(m[1]), run); ours {
					return name
				}
			}
		}
	}
}

// hoarder is a process that keeps memory.
type hoarder struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   syncBuffer
	ended <-chan struct{}
}

// keeping starts one in the cgroup of these directories.
func keeping(t *testing.T, dirs []string, name string, size, score int) *hoarder {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	k := &hoarder{t: t, cmd: exec.Command(self)}
	k.cmd.Env, k.cmd.Stdout, k.cmd.Stderr = append(os.Environ(), loadOf+"=keeps "+name+" "+strconv.Itoa(size)), &k.out, os.Stderr
	begin, err := k.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if k.ended, err = child.Start(k.cmd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.end)
	pid := strconv.Itoa(k.cmd.Process.Pid)
	for _, dir := range dirs {
		if err := cgroups.Write(dir, "cgroup.procs", pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := cgroups.Write("/proc/"+pid, "oom_score_adj", strconv.Itoa(score)); err != nil {
		t.Fatal(err)
	}
	if err := begin.Close(); err != nil {
		t.Fatal(err)
	}
	return k
}

// end ends it, and waits until it has: a cgroup goes without processes only.
func (k *hoarder) end() {
	_ = k.cmd.Process.Kill() // the kernel may have done it
	<-k.ended
}

// begun waits until it has all of its memory.
func (k *hoarder) begun() {
	k.t.Helper()
	for limit := time.Now().Add(patience(shortest)); !strings.Contains(k.out.String(), "begun"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			k.t.Fatalf("%q is said: %v", k.out.String(), k.cmd.ProcessState)
		}
	}
}
