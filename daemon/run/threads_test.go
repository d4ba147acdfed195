// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"os"
	"runtime"
	"strconv"
	"testing"
)

// EachThread looks at all threads of this process, among them some that were made just now. One may have ended when it is looked at.
func EachThread(t *testing.T, check func(tid int)) {
	t.Helper()
	locked := make(chan struct{})
	defer close(locked)
	for range 4 {
		go func() {
			runtime.LockOSThread() // a thread of its own, which ends with it
			<-locked
		}()
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, th := range threads {
		tid, err := strconv.Atoi(th.Name())
		if err != nil {
			t.Fatal(err)
		}
		check(tid)
	}
}
