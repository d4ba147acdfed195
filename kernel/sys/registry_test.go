// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

// later is a moment at which the times of all files that a test has written tell them apart.
func later() time.Time { return time.Now().Add(time.Hour) }

// Whatever becomes of the registry, an answer is what a reading from scratch finds.
func TestCDIRegistryFollows(t *testing.T) {
	t.Parallel()
	other := strings.ReplaceAll(cdiJSON, "GPU-8f6d", "GPU-9a7e") // of the same length
	for name, change := range map[string]func(etc, run string) error{
		"nothing":             func(string, string) error { return nil },
		"a file goes":         func(etc, _ string) error { return os.Remove(etc + "/a.json") },
		"a file comes":        func(etc, _ string) error { return os.WriteFile(etc+"/b.yaml", []byte(cdiYAML), 0o600) },
		"a file comes first":  func(_, run string) error { return os.WriteFile(run+"/b.yaml", []byte(cdiYAML), 0o600) },
		"it is written over":  func(etc, _ string) error { return os.WriteFile(etc+"/a.json", []byte(other), 0o600) },
		"it is half written":  func(etc, _ string) error { return os.Truncate(etc+"/a.json", 40) },
		"it is replaced":      func(etc, run string) error { return replace(run+"/new", etc+"/a.json", other) },
		"a link's target":     func(etc, _ string) error { return os.WriteFile(etc+"/target", []byte(cdiYAML), 0o600) },
		"the directory goes":  func(etc, _ string) error { return os.RemoveAll(etc) },
		"the directory comes": func(_, run string) error { return os.Mkdir(run+"/late", 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := kerneltest.Lay(t, map[string]string{"etc/a.json": cdiJSON, "run/notes.md": ""}, "\n")
			etc, run := filepath.Join(dir, "etc"), filepath.Join(dir, "run")
			if err := os.Symlink("target", etc+"/link.yaml"); err != nil {
				t.Fatal(err)
			}
			dirs := []string{etc, run, run + "/late"}
			r := NewCDIRegistry(dirs...)
			if got := r.at(later()); len(got) != 2 {
				t.Fatalf("at first %v", got)
			}
			if err := change(etc, run); err != nil {
				t.Fatal(err)
			}
			want, _ := CDINames(dirs...)
			for range 2 {
				if got := r.at(later()); !maps.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
			}
		})
	}
}

func replace(with, file, content string) error {
	if err := os.WriteFile(with, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(with, file)
}

// The files are read once: an answer after that is the same map. What has been written within a tick of the clock is not trusted.
func TestCDIRegistryReadsOnce(t *testing.T) { // not parallel: it counts allocations
	dir := kerneltest.Lay(t, map[string]string{"a.json": cdiJSON}, "\n")
	r := NewCDIRegistry(dir)
	if r.at(time.Now()); r.names != nil {
		t.Error("a file that has just been written counts as known")
	}
	r.at(later())["mark"] = struct{}{}
	if _, kept := r.at(later())["mark"]; !kept {
		t.Error("it is read again")
	}
	if n := testing.AllocsPerRun(100, func() { r.Names() }); n > 2 { // the two paths
		t.Errorf("%v allocations where nothing has changed", n)
	}
}

// A directory that cannot be listed says nothing of its names, and is an error of the probe; without one the registry is empty.
func TestCDIRegistryUnknown(t *testing.T) {
	t.Parallel()
	dir := kerneltest.Lay(t, map[string]string{"a.json": cdiJSON, "file": ""}, "\n")
	if got := NewCDIRegistry(dir, dir+"/file").Names(); got != nil {
		t.Errorf("got %v", got)
	}
	if _, err := CDINames(dir, dir+"/file"); err == nil || !strings.Contains(err.Error(), "list CDI specs") {
		t.Errorf("got %v", err)
	}
	if got := NewCDIRegistry(dir + "/none").Names(); got == nil || len(got) != 0 {
		t.Errorf("got %v", got)
	}
	if got := NewCDIRegistry().dirs; !slices.Equal(got, CDIDirs()) {
		t.Errorf("without directories: %v", got)
	}
}

// Who asks while it changes gets one of its states.
func TestCDIRegistryAtOnce(t *testing.T) {
	t.Parallel()
	dir := kerneltest.Lay(t, map[string]string{"a.json": cdiJSON}, "\n")
	r := NewCDIRegistry(dir)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if got := r.Names(); len(got) != 0 && len(got) != 2 {
					t.Errorf("got %v", got)
				}
			}
		})
	}
	for range 25 {
		if err := os.Rename(dir+"/a.json", dir+"/away"); err != nil {
			t.Error(err)
		}
		if err := os.Rename(dir+"/away", dir+"/a.json"); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}
