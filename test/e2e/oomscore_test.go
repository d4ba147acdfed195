// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/child"
)

// TestHostMemoryOOMScore is why no loop tunes oom_score_adj (ADR 23): in a cgroup that is out of memory the kernel kills the same process whatever is
// taken off the scores of all of them, which is all that a container could be given. It goes by the score where it differs between them.
func TestHostMemoryOOMScore(t *testing.T) {
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		large, small int // oom_score_adj; above 0, since to go below takes CAP_SYS_RESOURCE
		victim       string
	}{
		"as it was":           {600, 600, "large"},
		"less for all":        {300, 300, "large"},
		"less for the larger": {300, 700, "small"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := memoryGroup(t, tree, 160*mib)
			large, small := keeping(t, dir, 80*mib), keeping(t, dir, 40*mib)
			large.adjust(c.large)
			small.adjust(c.small)
			last := keeping(t, dir, 60*mib) // for which there is room when one of them has gone
			victim, other := large, small
			if c.victim == "small" {
				victim, other = small, large
			}
			select {
			case <-victim.ended:
			case <-time.After(20 * time.Second):
				t.Fatalf("the third process asks for more than there is, and the %s one lives", c.victim)
			}
			if s, ok := victim.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
				t.Errorf("the %s process ended otherwise: %s", c.victim, victim.cmd.ProcessState)
			}
			for who, k := range map[string]*hoarder{"the other": other, "the third": last} {
				select {
				case <-k.ended:
					t.Errorf("%s process ended, too: %s", who, k.cmd.ProcessState)
				default:
				}
			}
		})
	}
}

// memoryGroup is a cgroup of the memory controller with a limit.
func memoryGroup(t *testing.T, tree cgroups.Tree, limit int) string {
	t.Helper()
	mount, file := tree.Controllers["memory"], "memory.limit_in_bytes"
	if tree.V2() {
		mount, file = tree.Unified, "memory.max"
		if err := cgroups.Write(mount, "cgroup.subtree_control", "+memory"); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(mount, fmt.Sprintf("koord-rt-oom-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cgroups.Remove(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	if err := cgroups.Write(dir, file, strconv.Itoa(limit)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// hoarder is a process that keeps memory.
type hoarder struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended <-chan struct{}
}

// keeping starts one, and waits until it has all of its memory.
func keeping(t *testing.T, dir string, size int) *hoarder {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out syncBuffer
	k := &hoarder{t: t, cmd: exec.Command(self)}
	k.cmd.Env, k.cmd.Stdout, k.cmd.Stderr = append(os.Environ(), loadOf+"=keeps "+strconv.Itoa(size)), &out, os.Stderr
	begin, err := k.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if k.ended, err = child.Start(k.cmd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = k.cmd.Process.Kill() // the kernel may have done it
		<-k.ended
	})
	if err := cgroups.Write(dir, "cgroup.procs", strconv.Itoa(k.cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	if err := begin.Close(); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(20 * time.Second); out.String() == ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("nothing is said of %d MiB: %s", size/mib, k.cmd.ProcessState)
		}
	}
	return k
}

func (k *hoarder) adjust(score int) {
	k.t.Helper()
	file := fmt.Sprintf("/proc/%d/oom_score_adj", k.cmd.Process.Pid)
	if err := os.WriteFile(file, []byte(strconv.Itoa(score)), 0); err != nil {
		k.t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(got)) != strconv.Itoa(score) {
		k.t.Fatalf("%s is %q, %v; want %d", file, got, err, score)
	}
}
