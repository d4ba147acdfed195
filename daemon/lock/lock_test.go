// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestSecondIsRefusedAndToldWhoHasIt(t *testing.T) {
	t.Parallel()
	path := Path(filepath.Join(t.TempDir(), "run"), "nri")
	first, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Acquire(path)
	var held *HeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("second: %v", err)
	}
	if Holder(path) != os.Getpid() {
		t.Errorf("holder %d", Holder(path))
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	if Holder(path) != 0 {
		t.Errorf("holder after release %d", Holder(path))
	}
	again, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestGarbageInTheFileAndSymlinks(t *testing.T) {
	t.Parallel()
	path := Path(t.TempDir(), "nri")
	if err := os.WriteFile(path, []byte("-5 garbage garbage garbage garbage garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if Holder(path) != 0 {
		t.Errorf("holder %d", Holder(path))
	}
	l, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Release()
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(link); err == nil {
		t.Error("a symlink was followed")
	}
}

// A lock is alive while it is held and not marked; a file without a holder, whatever stands in it, is not.
func TestAlive(t *testing.T) {
	t.Parallel()
	path := Path(t.TempDir(), "nri")
	if Alive(path) {
		t.Error("alive without a file")
	}
	if err := os.WriteFile(path, []byte("1\n"), 0o600); err != nil { // what kill -9 leaves
		t.Fatal(err)
	}
	if Alive(path) {
		t.Error("alive without a holder")
	}
	l, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // to look changes nothing
		if !Alive(path) {
			t.Error("a held lock is not alive")
		}
	}
	if err := l.Leave(); err != nil {
		t.Fatal(err)
	}
	if Alive(path) {
		t.Error("alive although it leaves")
	}
	if _, err := Acquire(path); err == nil {
		t.Error("a lock whose holder leaves was given away before it was released")
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if Alive(path) {
		t.Error("alive after the release")
	}
}

// Who looks whether a lock is alive holds it for a moment, and must not keep its program from starting.
//
// It is not parallel: a child that another test forks has the look's lock until it executes its program, and here no time passes meanwhile.
func TestAcquireOutlastsALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := Path(t.TempDir(), "nri")
		if err := os.WriteFile(path, []byte("1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		look, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(look.Fd()), unix.LOCK_SH); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(pause+pause/2, func() {
			if err := look.Close(); err != nil { // and with it the lock
				t.Error(err)
			}
		})
		l, err := Acquire(path)
		if err != nil {
			t.Fatal(err)
		}
		if Holder(path) != os.Getpid() {
			t.Errorf("holder %d", Holder(path))
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	})
}

// A lock that cannot be written, as on a filesystem that has become read-only, is a lock all the same: another's is seen, and who has it
// keeps others out. It is signed once it can be. Here a running program stands in the file, which nobody may write, root neither.
func TestLockThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	path := Path(t.TempDir(), "koordlet")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	runs := exec.Command(path, "600")
	runs.Args[0] = "sleep"
	if err := runs.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		_ = runs.Process.Kill()
		_ = runs.Wait()
	}
	t.Cleanup(end)
	if _, err := os.OpenFile(path, os.O_RDWR, 0); !errors.Is(err, unix.ETXTBSY) {
		t.Fatalf("it can be written: %v", err)
	}
	if _, err := Acquire(path); err == nil {
		t.Error("acquired though nobody can see whose it is")
	}
	l, err := Take(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Sign(); err == nil {
		t.Error("signed")
	}
	var held *HeldError
	if _, err := Take(path); !errors.As(err, &held) {
		t.Errorf("beside one that has it: %v", err)
	}
	if _, err := Acquire(path); !errors.As(err, &held) {
		t.Errorf("beside one that has it: %v", err)
	}
	end()
	if err := l.Sign(); err != nil || Holder(path) != os.Getpid() {
		t.Errorf("%v, holder %d", err, Holder(path))
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
	if again, err := Acquire(path); err != nil {
		t.Error(err)
	} else if err := again.Release(); err != nil {
		t.Error(err)
	}
}

// Who has signed and whose file is removed or replaced since learns of it when he signs again.
func TestSignAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "nri.lock")
	l, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Sign(); err != nil {
		t.Errorf("while it stands: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := l.Sign(); !errors.Is(err, ErrReplaced) {
		t.Errorf("removed: %v", err)
	}
	other, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Sign(); !errors.Is(err, ErrReplaced) || Holder(path) != os.Getpid() {
		t.Errorf("replaced: %v, holder %d", err, Holder(path))
	}
	if err := errors.Join(l.Release(), other.Release()); err != nil {
		t.Error(err)
	}
}
