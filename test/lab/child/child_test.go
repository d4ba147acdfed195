// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package child_test

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

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

func TestChildThatDoesNotStart(t *testing.T) {
	if ended, err := child.Start(exec.Command("/nonexistent"), syscall.SIGKILL); err == nil || ended != nil {
		t.Errorf("started: %v", err)
	}
}
