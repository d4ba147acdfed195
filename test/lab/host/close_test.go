// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Close and RemoveStale kill what they recognise: never a process of another lab, and nothing but containerd's.
func TestUses(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"/c/containerd --config /tmp/krt1/config.toml":                                    true,
		"/c/containerd-shim-runc-v2 -namespace k8s.io -address /tmp/krt1/containerd.sock": true,
		"containerd --config /tmp/krt12/config.toml":                                      false,
		"/c/containerd --config /tmp/krt1/config.toml.old":                                false,
		"/c/containerd":                                               false,
		"vi /tmp/krt1/config.toml":                                    false,
		"koord-nri /tmp/krt1/config.toml":                             false,
		"/c/crio --config /tmp/krt1/config.toml":                      true,
		"/c/conmon -b /tmp/krt1/state/overlay-containers/a/userdata":  true,
		"/c/conmon -b /tmp/krt12/state/overlay-containers/a/userdata": false,
		"vi /tmp/krt1/state/config.json":                              false,
		"":                                                            false, // a kernel thread
	} {
		if got := uses("/tmp/krt1", strings.Split(line, " ")); got != want {
			t.Errorf("%q: %t", line, got)
		}
	}
}

// What runc writes of a container's groups is found, and what it is just writing is passed over.
func TestRuncCgroups(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for id, text := range map[string]string{
		"a": `{"cgroup_paths":{"cpu":"/sys/fs/cgroup/cpu/x/a","memory":"/sys/fs/cgroup/memory/x/a","":""}}`,
		"b": `{"cgroup_paths":{"":"/sys/fs/cgroup/x/b"}}`,
		"c": `{"cgroup_pat`,
		"d": `{"cgroup_paths":{"cpu":"/sys/fs/cgroup/cpu/x/a"}}`,
	} {
		dir := filepath.Join(root, "k8s.io", id)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := runcCgroups(root)
	slices.Sort(got)
	if want := []string{"/sys/fs/cgroup/cpu/x/a", "/sys/fs/cgroup/memory/x/a", "/sys/fs/cgroup/x/b"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
