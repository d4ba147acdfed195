// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package usage

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

// A pod is populated as long as a process is in any cgroup of it, and not when there is none or no such cgroup.
func TestPopulated(t *testing.T) {
	t.Parallel()
	const pod, other = "/kubepods/besteffort/poda", "/kubepods/besteffort/podb"
	for _, kernel := range []string{"6.12", "v1"} {
		tree := kerneltest.New(t, kernel, pod+"/c1/deep", pod+"/c2", other)
		fs, err := Open(tree.Roots, tree.Version)
		if err != nil {
			t.Fatal(err)
		}
		want := func(path string, want bool) {
			t.Helper()
			if got, err := fs.Populated(path); got != want || err != nil {
				t.Errorf("%s, %s: %v, %v", kernel, path, got, err)
			}
		}
		events := func(text string) {
			if kernel != "v1" {
				tree.Set(t, pod, "cgroup.events", text)
			}
		}
		tree.SetProcs(t, pod+"/c1/deep", 42)
		tree.SetProcs(t, other)
		events("populated 1\nfrozen 0")
		want(pod, true)
		want(other, false)
		want("/kubepods/besteffort/podc", false)
		tree.SetProcs(t, pod+"/c1/deep")
		events("populated 0\nfrozen 0")
		want(pod, false)
		if _, err := fs.Populated("/kubepods/../.."); err == nil {
			t.Errorf("%s: outside", kernel)
		}
		if kernel == "v1" {
			continue
		}
		events("frozen 0")
		if _, err := fs.Populated(pod); err == nil || !strings.Contains(err.Error(), "cgroup.events") {
			t.Errorf("no such line: %v", err)
		}
	}
}

func FuzzPopulated(f *testing.F) {
	f.Add("populated 1\nfrozen 0\n")
	f.Add("populated x")
	f.Fuzz(func(t *testing.T, text string) {
		if yes, ok := parsePopulated([]byte(text)); yes && (!ok || !strings.Contains(text, "populated")) {
			t.Errorf("%q is populated, %v", text, ok)
		}
	})
}
