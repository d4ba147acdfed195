// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgrouppath_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/model/cgrouppath"
)

// The kubelet's top cgroup below its --cgroup-root, with either driver.
func TestKubepods(t *testing.T) {
	t.Parallel()
	for root, want := range map[string][2]string{
		"":                   {"/kubepods.slice", "/kubepods"},
		"/":                  {"/kubepods.slice", "/kubepods"},
		"x":                  {"/x.slice/x-kubepods.slice", "/x/kubepods"},
		"/a-b/c":             {"/a_b.slice/a_b-c.slice/a_b-c-kubepods.slice", "/a-b/c/kubepods"},
		"/x.slice":           {"/x.slice/x-kubepods.slice", "/x.slice/kubepods"},
		"/a.slice/a-b.slice": {"/a.slice/a-b.slice/a-b-kubepods.slice", "/a.slice/a-b.slice/kubepods"},
	} {
		if slice, plain := cgrouppath.Kubepods(root); slice != want[0] || plain != want[1] {
			t.Errorf("%q: %s, %s", root, slice, plain)
		}
	}
}

// Every directory is one that OfPod reads back into the same UID, and a UID that is no name has none.
func TestOfUID(t *testing.T) {
	t.Parallel()
	got := cgrouppath.OfUID("/lab", "b1-c2")
	want := []string{
		"/lab.slice/lab-kubepods.slice/lab-kubepods-podb1_c2.slice", "/lab/kubepods/podb1-c2",
		"/lab.slice/lab-kubepods.slice/lab-kubepods-burstable.slice/lab-kubepods-burstable-podb1_c2.slice", "/lab/kubepods/burstable/podb1-c2",
		"/lab.slice/lab-kubepods.slice/lab-kubepods-besteffort.slice/lab-kubepods-besteffort-podb1_c2.slice", "/lab/kubepods/besteffort/podb1-c2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for _, dir := range append(got, cgrouppath.OfUID("", "b1-c2")...) {
		if p, ok := cgrouppath.OfPod(dir); !ok || p.UID != "b1-c2" {
			t.Errorf("%s is read as %+v, %v", dir, p, ok)
		}
	}
	for _, uid := range []string{"", "../x", "a/b", "a\x00", "a:b", strings.Repeat("a", 999)} {
		if got := cgrouppath.OfUID("", uid); got != nil {
			t.Errorf("%q: %q", uid, got)
		}
	}
}
