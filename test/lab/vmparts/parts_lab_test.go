// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package vmparts

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// TestParts builds every part the lane needs, or finds it in the cache.
func TestParts(t *testing.T) {
	cache, err := parts.Open(parts.Options{Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(cache)
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.Emulator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("qemu %s", e.Version)
	out, err := runTool(t.Context(), "/", e.Command[0], append(e.Command[1:], "-accel", "help")...)
	if err != nil || !strings.Contains(out, "tcg") {
		t.Errorf("emulator lists accelerators %q, want tcg among them: %v", out, err)
	}
	if _, err := s.Busybox(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.Rootfs(t.Context()); err != nil {
		t.Error(err)
	}
	for _, series := range []string{"6.12", "6.1", "7.2"} {
		k, err := s.Kernel(t.Context(), series)
		if err != nil {
			t.Errorf("kernel %s: %v", series, err)
			continue
		}
		t.Logf("kernel %s is %s", series, k.Release)
	}
}
