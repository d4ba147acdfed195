// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"strings"
	"testing"
)

// The configured endpoint holds, else that of the runtime that has connected; what cannot be reached is named.
func TestListerAsksTheRuntimeThatIsThere(t *testing.T) {
	t.Parallel()
	absent := "unix://" + t.TempDir() + "/absent.sock"
	for name, c := range map[string]struct{ endpoint, runtime, at, bad string }{
		"containerd":           {"", "containerd", "unix:///run/containerd/containerd.sock", ""},
		"CRI-O":                {"", "CRI-O", "unix:///run/crio/crio.sock", ""},
		"configured":           {absent, "containerd", absent, ""},
		"nobody has connected": {"", "", "", "no host.criEndpoint"},
		"unknown":              {"", "podman", "", "podman"},
	} {
		l := &lister{endpoint: c.endpoint, name: func() string { return c.runtime }}
		_, at, err := l.open()
		if at != c.at || (err != nil) != (c.bad != "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %q, %v", name, at, err)
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
	l := &lister{endpoint: absent, name: func() string { return "containerd" }}
	if err := l.Reach(t.Context()); err == nil || !strings.Contains(err.Error(), absent) || !strings.Contains(err.Error(), "criEndpoint") {
		t.Errorf("an endpoint where nobody answers: %v", err)
	}
	if _, _, err := l.Container(t.Context(), "c1"); err == nil || !strings.Contains(err.Error(), absent) {
		t.Errorf("a container of an endpoint where nobody answers: %v", err)
	}
}
