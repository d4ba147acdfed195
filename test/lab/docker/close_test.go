// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"strings"
	"testing"
)

// Close and RemoveStale kill what they recognise: never a process of another lab, and nothing but Docker's.
func TestUses(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"/c/usr/sbin/dockerd --data-root /tmp/krd1/data":                          true,
		"/c/usr/bin/containerd --config /tmp/krd1/config/containerd.toml":         true,
		"containerd-shim-runc-v2 -address /tmp/krd1/containerd.sock":              true,
		"/c/usr/sbin/dockerd --data-root /tmp/krd12/data":                         false,
		"/usr/sbin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock": false,
		"tail -f /tmp/krd1/dockerd.log":                                           false,
		"/tmp/krd1/dockerd":                                                       false, // its own name is no argument
		"":                                                                        false, // a kernel thread
	} {
		if got := uses("/tmp/krd1", strings.Split(line, " ")); got != want {
			t.Errorf("%q: %t", line, got)
		}
	}
}
