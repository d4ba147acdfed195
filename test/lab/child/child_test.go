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
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/child"
)

// A child outlives the thread on which somebody has asked for it, whatever becomes of that one. One that is started here ends with it.
func TestChildOutlivesOtherThreads(t *testing.T) {
	for _, tc := range []struct {
		how   func(*exec.Cmd, syscall.Signal) (<-chan struct{}, error)
		lives bool
	}{{child.Start, true}, {child.StartHere, false}} {
		cmd := exec.Command("sleep", "600")
		var ended <-chan struct{}
		var err error
		onThread(func() { ended, err = tc.how(cmd, syscall.SIGKILL) })
		if err != nil {
			t.Fatal(err)
		}
		limit := time.Minute // for one that is to end
		if tc.lives {
			limit = 200 * time.Millisecond
		}
		select {
		case <-ended:
			if tc.lives {
				t.Errorf("it ended: %s", cmd.ProcessState)
			}
		case <-time.After(limit):
			if !tc.lives {
				t.Error("it outlives its thread: this test shows nothing")
			}
		}
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if cmd.ProcessState == nil || cmd.ProcessState.Success() {
			t.Errorf("after it was killed: %v", cmd.ProcessState)
		}
	}
}

// onThread calls f on a thread that ends then. The main one never does.
func onThread(f func()) {
	done := make(chan struct{})
	go func() { // locked, and never unlocked: the thread ends with the goroutine
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		onThread(f) // on another, as this goroutine holds the main one
		runtime.UnlockOSThread()
	}()
	<-done
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
