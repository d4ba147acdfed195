// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package child_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/child"
)

// Threads end all the time, and no child with them.
func TestChildOutlivesOtherThreads(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	ended, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() { runtime.LockOSThread() }) // never unlocked: the thread ends with the goroutine
	}
	all.Wait()
	select {
	case <-ended:
		t.Errorf("it ended: %s", cmd.ProcessState)
	case <-time.After(50 * time.Millisecond):
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	<-ended
	if cmd.ProcessState == nil || cmd.ProcessState.Success() {
		t.Errorf("after it was killed: %v", cmd.ProcessState)
	}
}

// A child that is started here has the namespaces of this thread; one that is not has another's.
func TestChildHere(t *testing.T) {
	done := make(chan error)
	go func() { // locked, and never unlocked: the thread ends with the goroutine
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
				return err
			}
			own, err := os.Readlink("/proc/thread-self/ns/uts")
			if err != nil {
				return err
			}
			for _, start := range []struct {
				how  func(*exec.Cmd, syscall.Signal) (<-chan struct{}, error)
				here bool
			}{{child.StartHere, true}, {child.Start, false}} {
				cmd := exec.Command("readlink", "/proc/self/ns/uts")
				var out strings.Builder
				cmd.Stdout = &out
				ended, err := start.how(cmd, syscall.SIGKILL)
				if err != nil {
					return err
				}
				if <-ended; (strings.TrimSpace(out.String()) == own) != start.here {
					return fmt.Errorf("here %v: the child is in %s, and this thread in %s", start.here, out.String(), own)
				}
			}
			return nil
		}()
	}()
	if err := <-done; errors.Is(err, unix.EPERM) {
		t.Logf("no namespace can be made here: %v", err)
	} else if err != nil {
		t.Error(err)
	}
}

func TestChildThatDoesNotStart(t *testing.T) {
	if ended, err := child.Start(exec.Command("/nonexistent"), syscall.SIGKILL); err == nil || ended != nil {
		t.Errorf("started: %v", err)
	}
}
