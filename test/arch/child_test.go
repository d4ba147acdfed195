// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// TestChildrenAreStartedFromAThreadThatLasts: whom the kernel ends with the thread that forked it (Pdeathsig, which child.Tie sets) would end with any
// thread that some goroutine locks and does not give back. koord-nri once did, in one of thirty runs of a test.
func TestChildrenAreStartedFromAThreadThatLasts(t *testing.T) {
	t.Parallel()
	keepsIt := 0
	goFiles(t, func(path string, src []byte) {
		if path := filepath.ToSlash(path); strings.Contains(path, "/test/arch/") || !bytes.Contains(src, []byte("Pdeathsig")) && !bytes.Contains(src, []byte("child.Tie(")) {
			return
		}
		if bytes.Contains(src, []byte("runtime.LockOSThread()")) {
			keepsIt++
			return
		}
		t.Errorf("%s sets Pdeathsig and does not keep the thread: start the program with test/lab/child", path)
	})
	if keepsIt < 3 { // child itself, gate and the user namespace of kerneltest
		t.Error("hardly anybody sets Pdeathsig: the search is wrong")
	}
}
