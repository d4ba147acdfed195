// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
