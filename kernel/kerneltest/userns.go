// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kerneltest

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// apart marks a process that InUserNamespace started.
const apart = "KOORD_RT_TEST_APART"

// InUserNamespace runs the test once more, alone, as root of a user namespace of its own, where the namespace's limits
// (/proc/sys/user) are the test's to set. It returns true there, and false where the test is over. Call it first.
func InUserNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(apart) != "" {
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // the process ends with the thread that forks it (Pdeathsig), which another goroutine might end
	defer runtime.UnlockOSThread()
	p, err := os.StartProcess(self, []string{self, "-test.run=^" + t.Name() + "$", "-test.v", "-test.timeout=2m"}, &os.ProcAttr{
		Env:   append(os.Environ(), apart+"=1"),
		Files: []*os.File{nil, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
			Pdeathsig:   syscall.SIGKILL,
		},
	})
	Permitted(t, err, unix.CAP_SYS_ADMIN)
	state, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if !state.Success() {
		t.Errorf("in a user namespace: %s", state)
	}
	return false
}

// Limit sets a limit of the user namespace that InUserNamespace made.
func Limit(t testing.TB, name string, value int) {
	t.Helper()
	if os.Getenv(apart) == "" {
		t.Fatalf("set %s: not in a user namespace of the test's own", name)
	}
	if err := os.WriteFile(filepath.Join("/proc/sys/user", name), []byte(strconv.Itoa(value)), 0); err != nil {
		t.Fatal(err)
	}
}
